// SPDX-License-Identifier: Apache-2.0
#include "plan/price/price.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <unordered_map>

#include "plan/memory/engine_memory.h"
#include "plan/memory/rank_memory.h"
#include "plan/price/collective.h"
#include "plan/price/layer_cost.h"
#include "plan/price/pipe_time.h"
#include "spec/state/muon.h"

namespace trireme::plan {
namespace {

// Returns the bytes that the update reads and writes per element: it reads master and moments, and
// writes master, moments and weight; it reads the gradient twice, once for the norm. With a split
// master it also reads the weight, which is the high part. For other programs the gradient is also
// cleared, because their constants were fitted so.
double update_bytes(const Stack& stack, const Layout& l) {
  const double state = master_of(stack, l) == base::DType::u16 ? 2 * (2 + 8) + 2 : 2 * (4 + 8);
  return state + 2 + (stack.is_engine() ? 2 * grad_bytes(stack, l) : 3 * 4);
}

// The same per element that is a code of 8 bits: no bf16 weight, an fp32 master, which is read
// twice more, for its largest magnitude and its code.
double code_update_bytes(const Stack& stack, const Layout& l) {
  return 2 * (4 + 8) + 2 * grad_bytes(stack, l) + 2 * 4 + 1;
}

// Parameter elements of a rank, and those of them that are codes of 8 bits.
struct Elements {
  double all = 0, codes = 0;

  double plain() const { return all - codes; }
};

Elements dense_params(const LayerCosts& c, const RankShare& share) {
  return {params_of(c, share),
          share.blocks * c.block.code_params + share.other_blocks * c.other_block.code_params};
}

Elements expert_params(const LayerCosts& c, const RankShare& share) {
  return {expert_params_of(c, share), share.blocks * c.block.expert_code_params +
                                          share.other_blocks * c.other_block.expert_code_params};
}

// If backward is split, the slots that B writes for W are kept until W; otherwise they serve one
// layer.
std::array<double, static_cast<size_t>(Item::count)> items_of(const spec::MemoryTable& t,
                                                              bool splits_backward,
                                                              double reserved) {
  std::array<double, static_cast<size_t>(Item::count)> bytes{};
  const auto at = [&bytes](Item item) -> double& { return bytes[static_cast<size_t>(item)]; };
  at(Item::weights) = static_cast<double>(t.params);
  at(Item::gradients) = static_cast<double>(t.grads);
  at(Item::optimizer) = static_cast<double>(t.optim);
  at(Item::activations) =
      static_cast<double>(t.stash_inputs + t.stash_f_to_b + t.stash_f_to_w + t.stash_gradients);
  at(splits_backward ? Item::activations : Item::working) += static_cast<double>(t.stash_b_to_w);
  at(Item::working) += static_cast<double>(t.stash_recompute + t.stash_stream + t.scratch);
  at(Item::transfers) = static_cast<double>(t.comm + t.staging);
  at(Item::reserved) = reserved;
  return bytes;
}

// Returns the mean cost if `share` of the blocks have the first cost and the rest the second, which
// recomputes nothing and keeps more.
LayerCost mean_cost(const LayerCost& some, const LayerCost& others, double share) {
  LayerCost mean = others;
  const auto mix = [&](double LayerCost::*part) {
    mean.*part = share * (some.*part) + (1 - share) * (others.*part);
  };
  for (double LayerCost::*part :
       {&LayerCost::b, &LayerCost::w, &LayerCost::r, &LayerCost::b_tp, &LayerCost::r_tp,
        &LayerCost::b_cp, &LayerCost::r_ep, &LayerCost::r_kernels, &LayerCost::r_flops,
        &LayerCost::cut_flops, &LayerCost::kept_for_b, &LayerCost::kept_for_w,
        &LayerCost::kept_from_b}) {
    mix(part);
  }
  const auto mix_stash = [&](spec::LayerStash LayerCost::*stash) {
    for (size_t i = 0; i < (mean.*stash).frame_bytes.size(); ++i) {
      (mean.*stash).frame_bytes[i] =
          static_cast<int64_t>(share * static_cast<double>((some.*stash).frame_bytes[i]) +
                               (1 - share) * static_cast<double>((others.*stash).frame_bytes[i]));
    }
    (mean.*stash).recompute_forward = (some.*stash).recompute_forward;
    (mean.*stash).recompute_backward = (some.*stash).recompute_backward;
  };
  mix_stash(&LayerCost::merged_stash);
  mix_stash(&LayerCost::split_stash);
  return mean;
}

// The ranks that sum gradients: `copies` copies of the state, each on `shards` ranks, which are
// `stride` GPUs from each other.
struct DataRanks {
  int64_t copies = 1, shards = 1, stride = 1;

  int64_t size() const { return copies * shards; }
};

DataRanks dense_ranks(const Layout& l) {
  const int64_t apart = l.placement == Placement::dp_inside ? 1 : l.pp;
  return {l.dp_replicate, int64_t{l.dp_shard} * l.cp, l.tp * apart};
}

DataRanks expert_ranks(const Layout& l) {
  const spec::ExpertSizes sizes = spec::expert_sizes(l).value_or(spec::ExpertSizes{});
  const int64_t apart = l.placement == Placement::dp_inside ? 1 : l.pp;
  return {sizes.edp, sizes.ezero, int64_t{l.ep} * l.etp * apart};
}

}  // namespace

struct Pricer::State {
  const Job& job;
  const spec::Machine& machine;
  const Stack& stack;
  // Costs of layouts with the same key, and times by pipeline.
  struct Known {
    LayerCosts costs;
    std::map<std::tuple<int, int, Kind>, RankTimes> times;  // by pp, chunks and schedule
  };
  std::unordered_map<LayerKey, Known, LayerKeyHash> known;
  InFlightTable in_flight;
  EngineMemory engine_memory{job, stack};

  Known& find(const Layout& layout) {
    const LayerKey key = layer_key(job, layout);
    const auto found = known.find(key);
    if (found != known.end()) return found->second;
    LayerCosts all;
    all.embedding = embedding_cost(job, machine, stack, key);
    all.head = head_cost(job, machine, stack, key);
    const BlockKinds kinds = block_kinds(job, stack, layout);
    all.block = mean_block_cost(key, kinds.main);
    all.other_block = kinds.other.layer > 0 ? mean_block_cost(key, kinds.other) : all.block;
    if (has_exact_bytes(layout)) add_engine_buffers(job, layout, all);
    return known.emplace(key, Known{all, {}}).first->second;
  }

  // Returns the cost of a block. If only some blocks recompute, all get the mean cost; confirm()
  // uses the cost of each layer.
  LayerCost mean_block_cost(const LayerKey& key, const BlockKind& block) const {
    const LayerCost cost = block_cost(job, machine, stack, key, block);
    const int blocks = job.model.blocks();
    if (key.recompute_blocks < 0 || key.recompute_blocks >= blocks) return cost;
    LayerKey plain = key;
    plain.recompute = spec::Recompute::none;
    return mean_cost(cost, block_cost(job, machine, stack, plain, block),
                     static_cast<double>(key.recompute_blocks) / blocks);
  }

  bool has_exact_bytes(const Layout& layout) const {
    return stack.is_engine() && is_engine_layout(job, layout);
  }

  const RankTimes& times_of(const Layout& l, Known& of_key) const {
    const std::tuple key(l.pp, l.chunks, l.schedule);
    const auto found = of_key.times.find(key);
    if (found != of_key.times.end()) return found->second;
    return of_key.times.emplace(key, rank_times(job, l, stack, of_key.costs)).first->second;
  }

  Price price(const Layout& layout);
  void add_bytes(const Layout&, const LayerCosts&, const RankTimes&, Price&);
  void add_flops(const Layout&, const LayerCosts&, const RankTimes&, Price&) const;
  double data_seconds(const Layout&, const LayerCosts&, const RankTimes&) const;
  double reduce_seconds(const Layout&, double elements, double layers, const DataRanks&) const;
  double gather_seconds(const Elements&, double layers, const DataRanks&) const;
  double exposed_seconds(double transfer, double window, double overlap) const;
  double update_seconds(const Layout&, const LayerCosts&, const RankShare&) const;
};

// Returns the time of gradient reduction, layer by layer. If a copy of the state is sharded, each
// rank receives the sums of its shard, first inside the copy and then over copies (HSDP). In the
// fixed order one sum over all ranks leaves each a share, which copies then gather.
double Pricer::State::reduce_seconds(const Layout& l, double elements, double layers,
                                     const DataRanks& ranks) const {
  if (ranks.size() <= 1 || elements <= 0) return 0;
  const double bytes = elements / layers * reduce_bytes(stack, l);
  const bool fixed = sums_in_fixed_order(job, stack);
  const Group all{ranks.size(), ranks.stride};
  if (l.zero_stage == 0) {
    return layers * sum_seconds(machine, Collective::all_reduce, all, bytes, fixed);
  }
  const Group inside{ranks.shards, ranks.stride};
  const Group copies{ranks.copies, ranks.stride * ranks.shards};
  const double of_shard = bytes / static_cast<double>(ranks.shards);
  if (fixed) {
    return layers * (sum_seconds(machine, Collective::reduce_scatter, all, bytes, true) +
                     collective_seconds(machine, Collective::all_gather, copies, of_shard));
  }
  double seconds = 0;
  if (inside.size > 1) {
    seconds += collective_seconds(machine, Collective::reduce_scatter, inside, bytes);
  }
  if (copies.size > 1) {
    seconds += collective_seconds(machine, Collective::all_reduce, copies, of_shard);
  }
  return layers * seconds;
}

// Returns the time to gather one layer's parameters inside a copy of the state.
double Pricer::State::gather_seconds(const Elements& elements, double layers,
                                     const DataRanks& ranks) const {
  const double bytes = elements.plain() * stack.gather_bytes + elements.codes;
  return collective_seconds(machine, Collective::all_gather, {ranks.shards, ranks.stride},
                            bytes / layers);
}

// Returns the exposed part of a transfer, which is hidden up to the length of its window of
// compute.
double Pricer::State::exposed_seconds(double transfer, double window, double overlap) const {
  const double hidden = std::min(transfer * overlap, window);
  return transfer - hidden + stack.contention * hidden;
}

double Pricer::State::data_seconds(const Layout& l, const LayerCosts& costs,
                                   const RankTimes& times) const {
  const RankShare& share = times.slowest;
  // The compute that transfers can overlap with: the pass of one micro-batch; with several chunks
  // also the last micro-batches of the other chunks.
  const auto first = static_cast<double>(std::min<int64_t>(l.pp, micro_batches(job, l)));
  const double passes = std::max(1.0, first * (l.chunks - 1) / l.chunks);
  const double forward = times.slowest_seconds.forward * passes;
  const double backward = times.slowest_seconds.backward * passes;
  const auto m = static_cast<double>(micro_batches(job, l));
  const DataRanks ranks = dense_ranks(l), of_experts = expert_ranks(l);
  const Elements elements = dense_params(costs, share), experts = expert_params(costs, share);
  const double layers = std::max(1.0, share.all_blocks());
  const double reduce = (reduce_seconds(l, elements.all, layers, ranks) +
                         reduce_seconds(l, experts.all, layers, of_experts)) /
                        stack.data_rate;
  const auto gather = [&] {
    return layers / stack.data_rate *
           (gather_seconds(elements, layers, ranks) + gather_seconds(experts, layers, of_experts));
  };
  const auto exposed = [&](double transfer, double window, double overlap) {
    return exposed_seconds(transfer, window, overlap);
  };
  if (l.zero_stage < 3) {
    const double reduces = l.zero_stage == 2 && stack.reduces_each ? m : 1;
    double seconds =
        reduces *
        exposed(reduce, reduces > 1 ? times.slowest_seconds.backward : backward, stack.dp_overlap);
    // Updated weights are gathered during the next forward.
    if (l.zero_stage > 0 && ranks.size() > 1)
      seconds += exposed(gather(), forward, stack.dp_overlap);
    return seconds;
  }
  // In a pipeline parameters stay gathered for all micro-batches (keep_params); otherwise they are
  // gathered for every forward and every backward.
  const double gathered = gather();
  const bool is_kept =
      stack.is_engine() && l.reshard != spec::Reshard::automatic ? l.keeps_params() : l.pp > 1;
  if (is_kept) {
    return exposed(gathered, forward, stack.zero3_overlap) +
           (stack.reduces_each ? m : 1) *
               exposed(reduce, times.slowest_seconds.backward, stack.zero3_overlap);
  }
  return m * (exposed(gathered, forward, stack.zero3_overlap) +
              exposed(gathered + reduce, backward, stack.zero3_overlap));
}

Price Pricer::State::price(const Layout& l) {
  Known& of_key = find(l);
  const LayerCosts& costs = of_key.costs;
  const auto m = static_cast<double>(micro_batches(job, l));
  const RankTimes& times = times_of(l, of_key);
  const RankShare& share = times.slowest;
  const PhaseSeconds& own = times.slowest_seconds;
  Price price;
  const auto at = [&price](Term term) -> double& {
    return price.seconds_of[static_cast<size_t>(term)];
  };
  const double blocks = share.blocks, others = share.other_blocks;
  const auto of_blocks = [&](auto part) {
    return m * (blocks * part(costs.block) + others * part(costs.other_block));
  };
  at(Term::forward) = of_blocks([](const LayerCost& c) { return c.f; });
  at(Term::backward) = of_blocks([](const LayerCost& c) { return c.backward(); });
  at(Term::recompute) = of_blocks([](const LayerCost& c) { return c.r; });
  at(Term::tensor) = m * own.tensor;
  at(Term::context) = of_blocks([](const LayerCost& c) { return c.f_cp + c.b_cp; });
  at(Term::expert) = of_blocks([](const LayerCost& c) { return c.f_ep + c.b_ep + c.r_ep; });
  at(Term::ends) = m * own.ends;
  at(Term::host) = m * own.host;
  const PipeSeconds pipe = pipe_seconds(job, machine, stack, l, costs, times);
  at(Term::bubble) = pipe.bubble;
  at(Term::messages) = pipe.messages;
  at(Term::data) = data_seconds(l, costs, times);
  at(Term::optimizer) = update_seconds(l, costs, share);
  at(Term::rest) = stack.step_seconds;
  double sum = 0;
  for (const double seconds : price.seconds_of) sum += seconds;
  const auto ranks = static_cast<double>(l.ranks());
  at(Term::jitter) = sum * (stack.jitter + machine.jitter) * std::sqrt(2 * std::log(ranks));
  price.seconds = sum + at(Term::jitter);
  add_bytes(l, costs, times, price);
  add_flops(l, costs, times, price);
  return price;
}

// Returns the time of the optimizer's update of the rank's shard.
double Pricer::State::update_seconds(const Layout& l, const LayerCosts& costs,
                                     const RankShare& share) const {
  const auto bytes_of = [&](const Elements& elements) {
    return elements.plain() * update_bytes(stack, l) + elements.codes * code_update_bytes(stack, l);
  };
  const double bytes = bytes_of(dense_params(costs, share)) / l.state_shards() +
                       bytes_of(expert_params(costs, share)) / expert_shards(l);
  const double streamed = stack.optimizer * bytes /
                          (machine.processor.bytes_per_second * machine.processor.memory_reach);
  if (l.optimizer != spec::OptimizerKind::muon) return streamed;
  // The data ranks share the matrices of one block at a time.
  const auto flops_of = [&l](const LayerCost& block) {
    return std::max(block.muon_flops / (l.data_ranks() * l.cp), block.largest_muon_flops);
  };
  const double flops =
      share.blocks * flops_of(costs.block) + share.other_blocks * flops_of(costs.other_block);
  return streamed + spec::default_iterations * flops / machine.processor.fp32_flops;
}

void Pricer::State::add_bytes(const Layout& l, const LayerCosts& costs, const RankTimes& times,
                              Price& price) {
  price.bytes_of =
      has_exact_bytes(l)
          ? items_of(engine_memory.largest(l, costs, times.cut),
                     schedule::named(l.schedule).splits_backward, machine.processor.reserved_bytes)
          : rank_memory(job, machine, stack, l, costs, times, in_flight);
  for (const double bytes : price.bytes_of) price.bytes += bytes;
}

void Pricer::State::add_flops(const Layout& l, const LayerCosts& costs, const RankTimes& times,
                              Price& price) const {
  const auto m = static_cast<double>(micro_batches(job, l));
  const auto all_blocks = static_cast<double>(job.model.blocks());
  const auto other_blocks = static_cast<double>(std::ranges::count(times.cut.is_other, true));
  const auto total = [&](auto part) {
    return (all_blocks - other_blocks) * part(costs.block) +
           other_blocks * part(costs.other_block) + part(costs.embedding) + part(costs.head);
  };
  const double replicas = m * static_cast<double>(l.tp) * l.cp * l.data_ranks();
  price.model_flops = replicas * total([](const LayerCost& c) { return c.flops; });
  price.hardware_flops =
      price.model_flops + replicas * total([](const LayerCost& c) { return c.r_flops; });
}

Pricer::Pricer(const Job& job, const spec::Machine& machine, const Stack& stack)
    : state_(std::make_unique<State>(State{job, machine, stack})) {}
Pricer::~Pricer() = default;

Price Pricer::price(const Layout& layout) {
  if (layout.chunks > 0 && layout.accumulation > 0) return state_->price(layout);
  return state_->price(filled(state_->job, layout));
}

double Pricer::bytes_at_least(const Layout& layout) {
  if (!state_->has_exact_bytes(layout)) return price(layout).bytes;
  State::Known& known = state_->find(layout);
  return static_cast<double>(state_->engine_memory.bytes_at_least(
             layout, known.costs, state_->times_of(layout, known).cut)) +
         state_->machine.processor.reserved_bytes;
}

const LayerCosts& Pricer::layers(const Layout& layout) { return state_->find(layout).costs; }

}  // namespace trireme::plan
