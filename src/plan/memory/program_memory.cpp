// SPDX-License-Identifier: Apache-2.0
#include "plan/memory/program_memory.h"

#include <algorithm>

#include "spec/model.h"

namespace trireme::plan {
namespace {

using spec::SelectiveRecompute;
using ItemBytes = std::array<double, static_cast<size_t>(Item::count)>;

double& item_of(ItemBytes& bytes, Item item) { return bytes[static_cast<size_t>(item)]; }

// The bytes that one micro-batch keeps in one block, and that its backward needs while it runs.
struct BlockBytes {
  // Read by the input gradient (B), read by the weight gradient (W), and passed from B to W.
  double for_b = 0, for_w = 0, from_b = 0;
  double working = 0;
};

class Program {
 public:
  explicit Program(const ProgramRank& rank) : r_(rank), m_(rank.stack.memory), l_(rank.layout) {
    if (l_.precision == Precision::fp32) scale_ = 2;
    const bool is_sharded = l_.sequence_parallel && l_.tp > 1;
    norm_share_ = is_sharded ? 1.0 / l_.tp : 1;
    input_share_ = is_sharded && m_.keeps_gathered ? 1 : norm_share_;
    tokens_ = static_cast<double>(l_.micro_batch * r_.job.seq_len) / l_.cp;
  }

  void add_state(ItemBytes&) const;
  void add_transfers(ItemBytes&) const;
  void add_activations(ItemBytes&) const;

 private:
  BlockBytes block() const;
  double experts() const;
  double head() const;
  // Returns the kind of block that the rank has; with experts, if it has some of each kind.
  const spec::BlockSpec& shape() const {
    const spec::BlockSpec* dense = dense_block(r_.job.model);
    return dense != nullptr && r_.share.blocks == 0 ? *dense : main_block(r_.job.model);
  }

  const ProgramRank& r_;
  const spec::ProgramMemory& m_;
  const Layout& l_;
  double scale_ = 1;                         // size of an element relative to 16 bits
  double norm_share_ = 1, input_share_ = 1;  // fraction of a token's row on this rank
  double tokens_ = 0;
};

void Program::add_state(ItemBytes& bytes) const {
  const double params = params_of(r_.costs, r_.share);
  const double experts = expert_params_of(r_.costs, r_.share);
  const double data = static_cast<double>(l_.state_shards());
  const double expert_data = expert_shards(l_);
  const auto elements = [&](bool is_sharded) {
    return is_sharded ? params / data + experts / expert_data : params + experts;
  };
  const bool is_fp32 = l_.precision == Precision::fp32;
  const Stack& stack = r_.stack;
  // With ZeRO-1 and ZeRO-2 masters are sharded and weights are not, so that the cast weights stay.
  const bool is_cast = l_.zero_stage == 1 || l_.zero_stage == 2;
  const double weight =
      is_cast ? std::max(stack.weight_bytes, stack.gather_bytes) : stack.weight_bytes;
  item_of(bytes, Item::weights) = elements(l_.zero_stage >= 3) * (is_fp32 ? 4 : weight);
  item_of(bytes, Item::gradients) = elements(l_.zero_stage >= 2) * (is_fp32 ? 4 : stack.grad_bytes);
  item_of(bytes, Item::optimizer) =
      elements(l_.zero_stage >= 1) * (is_fp32 ? 8 : stack.optimizer_bytes);
}

// Adds gathered parameters and gradients that wait for their reduction, both unsharded.
void Program::add_transfers(ItemBytes& bytes) const {
  double& sum = item_of(bytes, Item::transfers);
  const LayerCost& block = r_.costs.block;
  const double each = block.params + block.expert_params;
  const double largest = std::max({r_.share.all_blocks() > 0 ? each : 0.0,
                                   r_.share.has_embedding ? r_.costs.embedding.params : 0.0,
                                   r_.share.has_head ? r_.costs.head.params : 0.0});
  const double params = params_of(r_.costs, r_.share) + expert_params_of(r_.costs, r_.share);
  if (l_.zero_stage >= 3) {
    // A pipeline keeps parameters gathered, because its stages alternate too quickly to gather for
    // each micro-batch, and accumulates gradients before it reduces them.
    const double gathered =
        l_.pp > 1 ? params : std::min(params, largest + m_.gathered_blocks * each);
    sum += gathered * r_.stack.gather_bytes * scale_;
    if (l_.pp > 1) sum += params * r_.stack.reduce_bytes;
  }
  if (l_.zero_stage >= 2 && l_.pp == 1) {
    const double reduced = std::min(params, largest + (m_.reduced_layers - 1) * each);
    sum += (m_.reduced_layers > 0 ? reduced : 0) * r_.stack.reduce_bytes;
  }
  if (l_.pp > 1) sum += 4 * block.input;
}

BlockBytes Program::block() const {
  const spec::BlockSpec& b = shape();
  const double width = static_cast<double>(b.width), tp = l_.tp;
  const double query = static_cast<double>(b.heads * b.head_dim) / tp;
  const double heads = static_cast<double>(b.heads) / tp;
  const double key = m_.expands_kv ? query : static_cast<double>(b.kv_heads * b.head_dim) / tp;
  const bool is_gated = b.activation == spec::Activation::swiglu;
  const double ffn = static_cast<double>(b.moe ? b.moe->shared_ffn : b.ffn) / tp;
  // Bytes of one token. The product after a norm, attention or activation reads 2 per element.
  const double norm_inputs = 2 * (m_.norm_bytes - 2) * width * norm_share_;
  const double norm_outputs = 2 * 2 * width * input_share_;
  const double masks = 2 * m_.mask_bytes * width * norm_share_;
  const double attention = 2 * (query + 2 * key) + 4 * heads;
  const double attention_output = 2 * query;
  const double scores =
      r_.stack.flash ? 0 : m_.score_bytes * heads * static_cast<double>(r_.job.seq_len);
  const double activation = ((is_gated ? m_.gated_bytes : m_.plain_bytes) - 2) * ffn;
  const double activation_output = 2 * ffn;

  BlockBytes all;
  all.for_w = norm_outputs + attention_output + activation_output;
  all.for_b = norm_inputs + masks + attention + scores + activation;
  const double up = is_gated ? 2 * ffn : ffn;
  all.from_b = 2 * (query + 2 * key + up + width * norm_share_ + width * norm_share_);
  const double all_kept = all.for_b + all.for_w;
  if (l_.recompute == spec::Recompute::full) {
    all.for_b = 2 * width * norm_share_;
    all.for_w = 0;
  } else if (l_.recompute == spec::Recompute::selective) {
    switch (r_.stack.selective) {
      case SelectiveRecompute::attention:
        all.for_b -= scores;
        break;
      case SelectiveRecompute::activation:
        all.for_w -= activation_output;
        break;
      default: {
        // Kept: the block's input, attention's output and every second product (query, value, the
        // first of the feed-forward and, if that is gated, its last).
        const double value = static_cast<double>(b.kv_heads * b.head_dim) / tp;
        all.for_b = 2 * (width * norm_share_ + query + value + ffn + (is_gated ? width : 0)) +
                    2 * query + 4 * heads;
        all.for_w = 0;
      }
    }
  }
  all.working = all_kept - (all.for_b + all.for_w) + 2 * (up + ffn + 2 * width);
  for (double* part : {&all.for_b, &all.for_w, &all.from_b, &all.working}) {
    *part *= tokens_ * scale_;
  }
  return all;
}

// Returns the bytes that one block's routed experts keep: rows in the experts' order, both
// projections and their product.
double Program::experts() const {
  const spec::BlockSpec& b = shape();
  if (!b.moe) return 0;
  // Each rank along tp routes its part of the tokens, and works on its part of the columns.
  const double rows = tokens_ * static_cast<double>(b.moe->router.chosen) / l_.tp * l_.etp;
  return rows * scale_ *
         (2 * 2 * static_cast<double>(b.width) +
          m_.gated_bytes * static_cast<double>(b.moe->ffn) / l_.etp);
}

// Returns the bytes that the loss needs while it runs: its logits, and the final norm's row with
// its gradient.
double Program::head() const {
  const auto& head = std::get<spec::HeadSpec>(r_.job.model.layers.back());
  const double logits = static_cast<double>(head.vocab) / l_.tp * m_.logit_bytes;
  const double width = static_cast<double>(shape().width);
  return tokens_ * (logits + (m_.norm_bytes + 2) * width * input_share_);
}

void Program::add_activations(ItemBytes& bytes) const {
  const BlockBytes of = block();
  const double routed = experts();
  const bool is_full = l_.recompute == spec::Recompute::full;
  const double for_w = of.for_w + (is_full ? 0 : routed);
  const auto at_peak = [&](const InFlight::Peaks& peaks) {
    return peak_bytes(peaks, [&](size_t chunk) {
      return r_.cut.of(stage_of(l_, r_.number, static_cast<int>(chunk)));
    });
  };
  const InFlight::Counts& counts = r_.counts;
  double& sum = item_of(bytes, Item::activations);
  sum = at_peak(counts.f_to_b) * (counts.is_merged ? of.for_b + for_w : of.for_b);
  if (!counts.is_merged) {
    sum += at_peak(counts.f_to_w) * for_w + at_peak(counts.b_to_w) * of.from_b;
  }
  const double in_block = r_.share.all_blocks() > 0 ? of.working + (is_full ? routed : 0) : 0;
  const double in_head = r_.share.has_head ? head() : 0;
  item_of(bytes, Item::working) = std::max(in_block, in_head);
  if (m_.keeps_pools) item_of(bytes, Item::reserved) = std::min(in_block, in_head);
}

}  // namespace

std::array<double, static_cast<size_t>(Item::count)> program_memory(const ProgramRank& rank) {
  const Program program(rank);
  ItemBytes bytes{};
  program.add_state(bytes);
  program.add_transfers(bytes);
  program.add_activations(bytes);
  double sum = 0;
  for (const double part : bytes) sum += part;
  const spec::ProgramMemory& memory = rank.stack.memory;
  item_of(bytes, Item::reserved) +=
      (memory.fragmentation - 1) * sum + memory.extra_bytes + rank.machine.processor.reserved_bytes;
  return bytes;
}

}  // namespace trireme::plan
