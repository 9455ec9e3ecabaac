// SPDX-License-Identifier: Apache-2.0
#include "plan/memory/rank_memory.h"

#include <algorithm>
#include <cmath>

#include "plan/memory/program_memory.h"
#include "spec/facts/op_shapes.h"

namespace trireme::plan {
namespace {

using Bytes = std::array<double, static_cast<size_t>(Item::count)>;

// Larger buckets, and larger activations along tp, are reduced in parts of this size
// (spec/parallel/data_parallel.cpp, spec/parallel/tensor_parallel.cpp).
constexpr double max_received = 64 * 1024 * 1024;
constexpr double send_buffers = 2;  // per channel
constexpr double input_bytes = 16;  // per token: id, label, position and offset

struct Rank {
  const Job& job;
  const spec::Machine& machine;
  const Stack& stack;
  const Layout& l;
  const LayerCosts& costs;
  const StageBlocks& cut;
  int number;
  RankShare share;
  const InFlight::Counts& counts;
  double first_in_flight;  // micro-batches in flight on the first stage

  bool is_fp32() const { return l.precision == Precision::fp32; }
  double weight_bytes() const { return is_fp32() ? 4 : 2; }
  double grad_bytes() const { return plan::grad_bytes(stack, l); }
  bool is_tied() const { return std::get<spec::HeadSpec>(job.model.layers.back()).tied; }
  double table() const { return costs.embedding.params; }
  // Returns whether the token table is used on two ranks.
  bool splits_table() const { return l.pp > 1 && is_tied() && !schedule::named(l.schedule).is_v; }

  Bytes bytes() const;
  void add_state(Bytes& bytes) const;
  void add_transfers(Bytes& bytes) const;
  void add_activations(Bytes& bytes) const;
  double grads_in_stash() const;
  double largest_layer() const;
  double two_layers() const;
  double working() const;
};

double& at(Bytes& bytes, Item item) { return bytes[static_cast<size_t>(item)]; }

Bytes Rank::bytes() const {
  Bytes all{};
  add_state(all);
  add_transfers(all);
  add_activations(all);
  at(all, Item::gradients) -= grads_in_stash();
  at(all, Item::working) = working();
  at(all, Item::reserved) = machine.processor.reserved_bytes;
  return all;
}

void Rank::add_state(Bytes& bytes) const {
  const double params = params_of(costs, share), experts = expert_params_of(costs, share);
  const double data = static_cast<double>(l.state_shards());
  const double expert_data = expert_shards(l);
  const auto sharded = [&](bool is_sharded) {
    return is_sharded ? params / data + experts / expert_data : params + experts;
  };
  at(bytes, Item::weights) = sharded(l.zero_stage >= 3) * weight_bytes();
  at(bytes, Item::gradients) = sharded(l.zero_stage >= 2) * grad_bytes();
  at(bytes, Item::optimizer) = sharded(l.zero_stage >= 1) * optimizer_bytes(stack, l);
  if (!share.has_head || !is_tied()) return;
  // The head has a separate gradient of a tied table, and a copy of the table if the embedding is
  // on another rank.
  at(bytes, Item::gradients) += table() * grad_bytes();
  if (splits_table()) at(bytes, Item::weights) += table() * weight_bytes();
}

double Rank::largest_layer() const {
  return std::max({share.all_blocks() > 0 ? costs.block.params + costs.block.expert_params : 0.0,
                   share.has_embedding ? costs.embedding.params : 0.0,
                   share.has_head ? costs.head.params : 0.0});
}

// Returns the elements of two buffers that the layers use alternately.
double Rank::two_layers() const {
  const double block = costs.block.params + costs.block.expert_params;
  const double blocks = share.all_blocks() + (share.has_embedding ? 1 : 0);
  std::array<double, 2> turns = {};
  for (double i = 0; i < std::min(share.all_blocks(), 2.0); i += 1) {
    turns[static_cast<size_t>(i + (share.has_embedding ? 1 : 0)) % 2] = block;
  }
  if (share.has_embedding) turns[0] = std::max(turns[0], costs.embedding.params);
  double& last = turns[static_cast<size_t>(blocks) % 2];
  if (share.has_head) last = std::max(last, costs.head.params);
  return turns[0] + turns[1];
}

// Adds buffers of parameters and gradients along dp, activations along tp, and messages of pp.
void Rank::add_transfers(Bytes& bytes) const {
  double& sum = at(bytes, Item::transfers);
  const double block = costs.block.params + costs.block.expert_params;
  const double largest = largest_layer();
  const double params = params_of(costs, share) + expert_params_of(costs, share);
  const double two = two_layers();
  if (l.zero_stage >= 3) {
    const bool has_table = l.pp == 1 && is_tied();
    const double some = has_table ? table() + 2 * block : two;
    sum += (l.pp > 1 ? params : std::min(params, some)) * weight_bytes();
  }
  if (l.zero_stage >= 2) sum += two * grad_bytes();
  const double width = static_cast<double>(spec::typical_block(job.model).width);
  const double tokens = static_cast<double>(l.micro_batch * job.seq_len) / l.cp;
  if (l.data_ranks() * l.cp > 1) sum += std::min(largest * grad_bytes(), max_received);
  if (l.tp > 1) sum += std::min(tokens * width * weight_bytes(), max_received);
  sum += 2 * static_cast<double>(micro_batches(job, l)) * tokens * input_bytes;
  if (l.pp == 1) return;
  // Outputs go to the next rank and gradients back; in a V both go both ways, and in an interleaved
  // schedule the first and last rank have two neighbours too.
  const bool is_end = number == 0 || number == l.pp - 1;
  double channels = is_end ? 1 : 2;
  if (schedule::named(l.schedule).is_v) channels = is_end ? 2 : 4;
  if (l.schedule == Kind::interleaved) channels = 2;
  sum += send_buffers * channels * costs.block.input;
  if (splits_table()) {
    if (share.has_embedding) sum += table() * grad_bytes();
    // Gradients of the micro-batches by which the head's rank is ahead.
    if (share.has_head && l.zero_stage >= 2) sum += (first_in_flight - 1) * table() * grad_bytes();
  }
}

void Rank::add_activations(Bytes& bytes) const {
  double largest = 0, smallest = INFINITY;
  const auto blocks_at_peak = [&](const InFlight::Peaks& peaks) {
    return peak_bytes(peaks, [&](size_t chunk) {
      const double blocks = cut.of(stage_of(l, number, static_cast<int>(chunk)));
      largest = std::max(largest, blocks);
      smallest = std::min(smallest, blocks);
      return blocks;
    });
  };
  const double other_part = share.all_blocks() > 0 ? share.other_blocks / share.all_blocks() : 0;
  const auto of_block = [&](auto part) {
    return (1 - other_part) * part(costs.block) + other_part * part(costs.other_block);
  };
  const double for_b = of_block([](const LayerCost& c) { return c.kept_for_b; });
  const double for_w = of_block([](const LayerCost& c) { return c.kept_for_w; });
  double& sum = at(bytes, Item::activations);
  sum = blocks_at_peak(counts.f_to_b) * (counts.is_merged ? for_b + for_w : for_b);
  if (!counts.is_merged) {
    sum +=
        blocks_at_peak(counts.f_to_w) * for_w +
        blocks_at_peak(counts.b_to_w) * of_block([](const LayerCost& c) { return c.kept_from_b; });
  }
  // If stages of a rank alternate, a large frame does not fit where small ones were. The first
  // stage also keeps the input of its first block.
  const double passages = static_cast<double>(micro_batches(job, l)) * l.chunks;
  if (l.pp > 1 && l.schedule == Kind::interleaved && counts.f_to_b.back() < passages) {
    const double gap = largest + std::min(counts.last_stage * smallest, largest);
    const bool is_uneven = smallest < largest;
    if (is_uneven || share.has_embedding) sum += (is_uneven ? gap : largest) * for_b;
    if (is_uneven) sum += gap * for_w;
  }
  if (share.has_head) sum += counts.last_stage * costs.head.kept();
  // The output gradient from the next stage.
  if (l.pp > 1) sum += costs.block.input;
}

// Returns the gradients that reuse the memory of later layers' activations, as
// spec/memory/grad_places.h places them.
double Rank::grads_in_stash() const {
  const bool is_one_backward = micro_batches(job, l) == 1 && l.pp == 1 && counts.is_merged &&
                               l.zero_stage < 2 &&
                               (l.data_ranks() * l.cp == 1 || l.zero_stage == 1);
  if (!is_one_backward) return 0;
  const LayerCost& block = costs.block;
  const double of_block = (block.params + block.expert_params) * grad_bytes();
  double for_w = costs.head.kept_for_w, for_b = costs.head.kept_for_b;  // free bytes
  double sum = 0;
  const auto place = [&](double bytes) {
    double& pool = bytes <= for_w ? for_w : for_b;
    if (bytes > pool) return;
    pool -= bytes;
    sum += bytes;
  };
  for (double i = 0; i < share.all_blocks(); i += 1) {
    place(of_block);
    for_w += block.kept_for_w;
    for_b += block.kept_for_b;
  }
  place(costs.embedding.params * grad_bytes());
  return sum;
}

double Rank::working() const {
  double sum = std::max(share.has_head ? costs.head.scratch : 0.0,
                        share.has_embedding ? costs.embedding.scratch : 0.0);
  if (share.all_blocks() > 0) {
    const LayerCost& block = costs.block;
    sum = std::max(sum, block.scratch) + block.dropped;
    if (counts.runs_pairs) sum += block.dropped_backward;
    if (counts.is_merged) sum += block.made_by_b + 2 * block.output_gradient;
  }
  return sum + static_cast<double>(job.backend.stream_workspace_bytes);
}

}  // namespace

std::array<double, static_cast<size_t>(Item::count)> rank_memory(
    const Job& job, const spec::Machine& machine, const Stack& stack, const Layout& l,
    const LayerCosts& costs, const RankTimes& times, InFlightTable& table) {
  const InFlight& in_flight = table.find(l, micro_batches(job, l));
  Bytes largest{};
  double max_bytes = -1;
  for (size_t i = 0; i < static_cast<size_t>(times.ends.count); ++i) {
    const int number = times.ends.ranks[i];
    const Rank rank{job,
                    machine,
                    stack,
                    l,
                    costs,
                    times.cut,
                    number,
                    times.shares[i],
                    in_flight.ranks[i],
                    in_flight.ranks.front().f_to_w.front()};
    const Bytes bytes = stack.is_engine()
                            ? rank.bytes()
                            : program_memory({job, machine, stack, l, costs, times.cut, number,
                                              times.shares[i], in_flight.ranks[i]});
    double sum = 0;
    for (const double part : bytes) sum += part;
    if (sum > max_bytes) {
      max_bytes = sum;
      largest = bytes;
    }
  }
  return largest;
}

}  // namespace trireme::plan
