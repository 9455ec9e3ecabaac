// SPDX-License-Identifier: Apache-2.0
#include "plan/price.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "plan/collective.h"
#include "plan/engine_memory.h"
#include "plan/layer_cost.h"
#include "plan/pipe_time.h"
#include "plan/rank_memory.h"

namespace trireme::plan {
namespace {

struct KeyHash {
  size_t operator()(const LayerKey& k) const {
    uint64_t h = static_cast<uint64_t>(k.micro_batch);
    for (const int value : {k.tp, k.cp, k.ep, static_cast<int>(k.recompute),
                            static_cast<int>(k.sequence_parallel), static_cast<int>(k.precision)}) {
      h = h * 1000003U + static_cast<uint64_t>(value);
    }
    return h;
  }
};

// What the update reads and writes of one element: master and moments in, master, moments and
// weight out; the gradient, and that once more for its norm. A weight that is half of the master is
// read, too. Other programs clear the gradient, too: so their constants were fitted.
double update_bytes(const Stack& stack, Precision precision) {
  const double state =
      master_of(stack, precision) == base::DType::u16 ? 2 * (2 + 8) + 2 : 2 * (4 + 8);
  return state + 2 + (stack.is_engine() ? 2 * stack.grad_bytes : 3 * 4);
}

// Where B and W are apart, what B writes for W is kept; else it serves one layer.
std::array<double, static_cast<size_t>(Item::count)> items_of(const spec::MemoryTable& t,
                                                              bool is_apart, double reserved) {
  std::array<double, static_cast<size_t>(Item::count)> bytes{};
  const auto at = [&bytes](Item item) -> double& { return bytes[static_cast<size_t>(item)]; };
  at(Item::weights) = static_cast<double>(t.params);
  at(Item::gradients) = static_cast<double>(t.grads);
  at(Item::optimizer) = static_cast<double>(t.optim);
  at(Item::activations) =
      static_cast<double>(t.stash_inputs + t.stash_f_to_b + t.stash_f_to_w + t.stash_gradients);
  at(is_apart ? Item::activations : Item::working) += static_cast<double>(t.stash_b_to_w);
  at(Item::working) += static_cast<double>(t.stash_recompute + t.stash_stream + t.scratch);
  at(Item::transfers) = static_cast<double>(t.comm + t.staging);
  at(Item::reserved) = reserved;
  return bytes;
}

}  // namespace

struct Pricer::State {
  const Job& job;
  const spec::Machine& machine;
  const Stack& stack;
  // Of layouts with the same key, by pipeline.
  struct Known {
    LayerCosts costs;
    std::unordered_map<uint64_t, RankTimes> times;
  };
  std::unordered_map<LayerKey, Known, KeyHash> known;
  InFlightTable in_flight;
  EngineMemory engine_memory{job, stack};

  Known& find(const Layout& layout) {
    const LayerKey key = layer_key(layout);
    const auto found = known.find(key);
    if (found != known.end()) return found->second;
    LayerCosts all;
    all.embedding = embedding_cost(job, machine, stack, key);
    all.head = head_cost(job, machine, stack, key);
    all.block = block_cost(job, machine, stack, key, job.experts.has_value());
    all.dense_block = job.experts && job.experts->dense_layers > 0
                          ? block_cost(job, machine, stack, key, false)
                          : all.block;
    if (has_exact_bytes(layout)) add_engine_buffers(job, stack, layout, all);
    return known.emplace(key, Known{all, {}}).first->second;
  }

  bool has_exact_bytes(const Layout& layout) const {
    return stack.is_engine() && is_engine_layout(job, layout);
  }

  const RankTimes& times_of(const Layout& l, Known& of_key) const {
    const uint64_t key =
        (static_cast<uint64_t>(l.pp) * 65536 + static_cast<uint64_t>(l.chunks)) * 8 +
        static_cast<uint64_t>(l.pipe);
    const auto found = of_key.times.find(key);
    if (found != of_key.times.end()) return found->second;
    return of_key.times.emplace(key, rank_times(job, l, stack, of_key.costs)).first->second;
  }

  Price price(const Layout& layout);
  double data_seconds(const Layout&, const LayerCosts&, const RankTimes&) const;
  double reduce_seconds(const Layout&, double elements, double layers, const Group&) const;
};

namespace {

Group data_group(const Layout& l, int64_t size) {
  return {size, l.placement == Placement::dp_inside ? int64_t{l.tp} : int64_t{l.tp} * l.pp};
}

}  // namespace

// Sums of gradients, and where the optimizer's state is sharded the gathering of weights, layer by
// layer.
double Pricer::State::reduce_seconds(const Layout& l, double elements, double layers,
                                     const Group& group) const {
  if (group.size <= 1 || elements <= 0) return 0;
  const double each = elements / layers;
  if (l.zero == 0) {
    return layers *
           collective_seconds(machine, Collective::all_reduce, group, each * stack.reduce_bytes);
  }
  return layers *
         collective_seconds(machine, Collective::reduce_scatter, group, each * stack.reduce_bytes);
}

double Pricer::State::data_seconds(const Layout& l, const LayerCosts& costs,
                                   const RankTimes& times) const {
  const RankShare& share = times.last;
  // Under which transfers can hide: the pass of one micro-batch; with several chunks, that of the
  // others' last micro-batches.
  const auto micro_batches = static_cast<double>(std::min<int64_t>(l.pp, l.micro_batches(job)));
  const double passes = std::max(1.0, micro_batches * (l.chunks - 1) / l.chunks);
  const double forward = times.last_seconds.forward * passes;
  const double backward = times.last_seconds.backward * passes;
  const auto m = static_cast<double>(l.micro_batches(job));
  const Group group = data_group(l, int64_t{l.dp} * l.cp);
  const double elements = params_of(costs, share), experts = expert_params_of(costs, share);
  const double layers = std::max(1.0, share.all_blocks());
  const Group expert_group{std::max<int64_t>(1, int64_t{l.dp} * l.cp / l.ep), group.stride * l.ep};
  const double reduce = (reduce_seconds(l, elements, layers, group) +
                         reduce_seconds(l, experts, layers, expert_group)) /
                        stack.data_rate;
  const auto gather = [&] {
    return layers / stack.data_rate *
           (collective_seconds(machine, Collective::all_gather, group,
                               elements / layers * stack.gather_bytes) +
            collective_seconds(machine, Collective::all_gather, expert_group,
                               experts / layers * stack.gather_bytes));
  };
  // Hidden as far as there is compute of the right kind at the right time.
  const auto exposed = [&](double transfer, double window, double overlap) {
    const double hidden = std::min(transfer * overlap, window);
    return transfer - hidden + stack.contention * hidden;
  };
  if (l.zero < 3) {
    const double reduces = l.zero == 2 && stack.reduces_each ? m : 1;
    double seconds = reduces * exposed(reduce, reduces > 1 ? times.last_seconds.backward : backward,
                                       stack.dp_overlap);
    // Weights come back under the next forward.
    if (l.zero > 0 && group.size > 1) seconds += exposed(gather(), forward, stack.dp_overlap);
    return seconds;
  }
  // Parameters stay for all micro-batches where stages take turns (keep_params); else they are
  // gathered for every forward and every backward.
  const double gathered = gather();
  if (l.pp > 1) {
    return exposed(gathered, forward, stack.zero3_overlap) +
           (stack.reduces_each ? m : 1) *
               exposed(reduce, times.last_seconds.backward, stack.zero3_overlap);
  }
  return m * (exposed(gathered, forward, stack.zero3_overlap) +
              exposed(gathered + reduce, backward, stack.zero3_overlap));
}

Price Pricer::State::price(const Layout& l) {
  Known& of_key = find(l);
  const LayerCosts& costs = of_key.costs;
  const auto m = static_cast<double>(l.micro_batches(job));
  const RankTimes& times = times_of(l, of_key);
  const RankShare& share = times.last;
  const PhaseSeconds& own = times.last_seconds;
  Price price;
  const auto at = [&price](Term term) -> double& {
    return price.seconds_of[static_cast<size_t>(term)];
  };
  const double blocks = share.blocks, dense = share.dense_blocks;
  const auto of_blocks = [&](auto part) {
    return m * (blocks * part(costs.block) + dense * part(costs.dense_block));
  };
  at(Term::forward) = of_blocks([](const LayerCost& c) { return c.f; });
  at(Term::backward) = of_blocks([](const LayerCost& c) { return c.backward(); });
  at(Term::recompute) = of_blocks([](const LayerCost& c) { return c.r; });
  at(Term::tensor) = m * own.tensor;
  at(Term::context) = of_blocks([](const LayerCost& c) { return c.f_cp + c.b_cp; });
  at(Term::expert) = of_blocks([](const LayerCost& c) { return c.f_ep + c.b_ep; });
  at(Term::ends) = m * own.ends;
  at(Term::host) = m * own.host;
  const PipeSeconds pipe = pipe_seconds(job, machine, stack, l, costs, times);
  at(Term::bubble) = pipe.bubble;
  at(Term::messages) = pipe.messages;
  at(Term::data) = data_seconds(l, costs, times);
  const double params =
      params_of(costs, share) / (l.zero > 0 ? l.dp * l.cp : 1) +
      expert_params_of(costs, share) / (l.zero > 0 ? std::max(1, l.dp * l.cp / l.ep) : 1);
  at(Term::optimizer) = stack.optimizer * params * update_bytes(stack, l.precision) /
                        (machine.processor.bytes_per_second * machine.processor.memory_reach);
  at(Term::rest) = stack.step_seconds;
  double sum = 0;
  for (const double seconds : price.seconds_of) sum += seconds;
  const auto ranks = static_cast<double>(l.processors());
  at(Term::jitter) = sum * (stack.jitter + machine.jitter) * std::sqrt(2 * std::log(ranks));
  price.seconds = sum + at(Term::jitter);

  price.bytes_of = has_exact_bytes(l)
                       ? items_of(engine_memory.largest(l, costs, times.cut), is_apart(l.pipe),
                                  machine.processor.reserved_bytes)
                       : rank_memory(job, machine, stack, l, costs, times, in_flight);
  for (const double bytes : price.bytes_of) price.bytes += bytes;

  const double all_blocks = static_cast<double>(job.model.blocks());
  const double dense_blocks = job.experts ? static_cast<double>(job.experts->dense_layers) : 0;
  const auto total = [&](auto part) {
    return (all_blocks - dense_blocks) * part(costs.block) +
           dense_blocks * part(costs.dense_block) + part(costs.embedding) + part(costs.head);
  };
  const double replicas = m * static_cast<double>(l.tp) * l.cp * l.dp;
  price.model_flops = replicas * total([](const LayerCost& c) { return c.flops; });
  price.hardware_flops =
      price.model_flops + replicas * total([](const LayerCost& c) { return c.r_flops; });
  return price;
}

Pricer::Pricer(const Job& job, const spec::Machine& machine, const Stack& stack)
    : state_(std::make_unique<State>(job, machine, stack)) {}
Pricer::~Pricer() = default;

Price Pricer::price(const Layout& layout) { return state_->price(layout); }

double Pricer::bytes_at_least(const Layout& layout) {
  if (!state_->has_exact_bytes(layout)) return price(layout).bytes;
  State::Known& known = state_->find(layout);
  return static_cast<double>(state_->engine_memory.bytes_at_least(
             layout, known.costs, state_->times_of(layout, known).cut)) +
         state_->machine.processor.reserved_bytes;
}

const LayerCosts& Pricer::layers(const Layout& layout) { return state_->find(layout).costs; }

std::string_view name_of(Term term) {
  constexpr std::array<std::string_view, static_cast<size_t>(Term::count)> names = {
      "forward", "backward", "recompute", "ends",      "tensor", "context", "expert",
      "bubble",  "messages", "data",      "optimizer", "host",   "jitter",  "rest"};
  return names[static_cast<size_t>(term)];
}

std::string_view meaning_of(Term term) {
  constexpr std::array<std::string_view, static_cast<size_t>(Term::count)> meanings = {
      "forward of the blocks",
      "backward of the blocks",
      "forward again, for what was not kept",
      "embedding, head and loss",
      "tensor parallel collectives, not hidden",
      "context parallel transfers, not hidden",
      "expert parallel exchanges, not hidden",
      "waiting for other stages",
      "pipeline messages, not hidden",
      "data parallel and ZeRO collectives, not hidden",
      "gradient norm and update",
      "kernels sent more slowly than they run",
      "waiting for the slowest rank",
      "data, logs"};
  return meanings[static_cast<size_t>(term)];
}

std::string_view name_of(Item item) {
  constexpr std::array<std::string_view, static_cast<size_t>(Item::count)> names = {
      "weights", "gradients", "optimizer", "activations", "working", "transfers", "reserved"};
  return names[static_cast<size_t>(item)];
}

}  // namespace trireme::plan
