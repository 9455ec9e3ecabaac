// SPDX-License-Identifier: Apache-2.0
#include "plan/search/space.h"

#include <algorithm>

namespace trireme::plan {
namespace {

std::vector<int64_t> divisors(int64_t number) {
  std::vector<int64_t> low, high;
  for (int64_t d = 1; d * d <= number; ++d) {
    if (number % d != 0) continue;
    low.push_back(d);
    if (d * d != number) high.push_back(number / d);
  }
  low.insert(low.end(), high.rbegin(), high.rend());
  return low;
}

template <typename T>
bool allows(const std::vector<T>& list, T value) {
  return list.empty() || std::ranges::find(list, value) != list.end();
}

// A schedule with its chunks, in the order of simplicity.
struct Staged {
  Kind pipe;
  int chunks;
};

std::vector<Staged> staged(const Job& job, const Space& space, int pp) {
  if (pp == 1) return {{Kind::one_f_one_b, 1}};
  std::vector<Staged> all;
  const auto add = [&](Kind pipe, int chunks) {
    if (allows(space.pipes, pipe) && allows(space.chunks, chunks)) all.push_back({pipe, chunks});
  };
  // For pipelines of up to a hundred ranks and models of some hundred blocks this is every schedule
  // with every number of chunks. Beyond that, schedules take long to generate and a finer choice
  // gains nothing; schedules and chunks that the space names are still visited.
  constexpr int long_pipeline = 256, all_chunks = 64, max_stages = 512;
  for (const Kind pipe :
       {Kind::one_f_one_b, Kind::gpipe, Kind::zb_h1, Kind::zb_h2, Kind::zb_v, Kind::dualpipe_v}) {
    const bool is_simple = pipe == Kind::one_f_one_b || pipe == Kind::gpipe;
    if (!is_simple && pp > long_pipeline && space.pipes.empty()) continue;
    add(pipe, schedule::named(pipe).chunks);
  }
  const int max_chunks = (job.model.blocks() + 2) / pp;
  const int max_tried = std::min(max_chunks, max_stages / pp);
  for (int chunks = 2; chunks <= max_tried;
       chunks = chunks < all_chunks ? chunks + 1 : 2 * chunks) {
    if (space.chunks.empty()) add(Kind::interleaved, chunks);
  }
  for (const int chunks : space.chunks) {
    if (chunks >= 2 && chunks <= max_chunks) add(Kind::interleaved, chunks);
  }
  return all;
}

// Each function loops over the values of some fields and calls the next one.
class Enumerator {
 public:
  Enumerator(const Job& job, const spec::Machine& machine, const SearchOptions& options,
             const std::function<void(const Layout&)>& visit)
      : job_(job),
        work_(workload_of(job)),
        domain_(machine.domain.size),
        options_(options),
        space_(options.space),
        visit_(visit) {}

  void degrees(const std::vector<int64_t>& tps) {
    for (const int64_t tp : tps) {
      for (const int64_t cp : divisors(options_.gpus / tp)) {
        if (!allows(space_.cp, static_cast<int>(cp))) continue;
        for (const int64_t pp : divisors(options_.gpus / tp / cp)) {
          if (pp > job_.model.blocks() + 2 || !allows(space_.pp, static_cast<int>(pp))) continue;
          Layout layout;
          layout.grad_dtype = space_.grad_dtype;
          layout.reduce_dtype = space_.reduce_dtype;
          layout.deterministic = space_.deterministic;
          layout.bf16_first = space_.bf16_first;
          layout.bf16_last = space_.bf16_last;
          layout.bf16_blocks = space_.bf16_blocks;
          layout.tp = static_cast<int>(tp);
          layout.cp = static_cast<int>(cp);
          layout.pp = static_cast<int>(pp);
          layout.dp_replicate = static_cast<int>(options_.gpus / tp / cp / pp);
          layout.row_budget = space_.row_budget;
          layout.expert_capacity = space_.expert_capacity;
          layout.overflow = space_.overflow;
          experts(layout);
        }
      }
    }
  }

 private:
  void experts(Layout layout) {
    const spec::MoeSpec* moe = spec::moe_of(job_.model);
    const int64_t ranks = int64_t{layout.data_ranks()} * layout.cp * layout.tp;
    for (const int64_t ep : divisors(moe != nullptr ? moe->router.experts : 1)) {
      if (!allows(space_.ep, static_cast<int>(ep))) continue;
      layout.ep = static_cast<int>(ep);
      for (const int64_t etp : divisors(moe != nullptr ? moe->ffn : 1)) {
        const bool is_allowed = moe == nullptr || allows(space_.etp, static_cast<int>(etp));
        if (ranks % (ep * etp) != 0 || !is_allowed) continue;
        layout.etp = static_cast<int>(etp);
        batch(layout);
      }
    }
  }

  void batch(Layout layout) {
    if (job_.global_batch % layout.data_ranks() != 0) return;
    for (const int64_t micro : divisors(job_.global_batch / layout.data_ranks())) {
      if (!allows(space_.micro_batch, micro)) continue;
      layout.micro_batch = micro;
      for (const Staged& stages : staged(job_, space_, layout.pp)) {
        layout.schedule = stages.pipe;
        layout.chunks = stages.chunks;
        // The time of incomplete groups of micro-batches is not modelled.
        const bool is_interleaved = layout.pp > 1 && layout.schedule == Kind::interleaved;
        if (is_interleaved && micro_batches(job_, layout) % layout.pp != 0) continue;
        if (is_unwieldy(layout)) continue;
        state(layout);
      }
    }
  }

  // Schedules of millions of passes take minutes to generate and check. Jobs on up to some ten
  // thousand GPUs have none of them.
  bool is_unwieldy(const Layout& layout) const {
    constexpr int64_t max_passes = int64_t{1} << 20;
    return layout.pp > 1 && space_.pipes.empty() && space_.chunks.empty() &&
           layout.pp * int64_t{layout.chunks} * micro_batches(job_, layout) > max_passes;
  }

  void state(Layout layout) {
    const int data = layout.data_ranks();
    const bool may_shard = int64_t{data} * layout.cp > 1;
    for (const Precision precision : space_.precision) {
      layout.precision = precision;
      const bool has_fp32_masters = precision == Precision::fp32 || precision == Precision::fp16;
      layout.master_dtype = has_fp32_masters ? base::DType::f32 : space_.master_dtype;
      for (int zero = 0; zero <= (may_shard ? 3 : 0); ++zero) {
        if (!allows(space_.zero, zero) && may_shard) continue;
        spec::set_data_ranks(layout, data, zero);
        for (const int shard : shards_of(layout)) {
          layout.dp_shard = shard;
          layout.dp_replicate = data / shard;
          for (const auto recompute :
               {spec::Recompute::none, spec::Recompute::selective, spec::Recompute::full}) {
            if (!allows(space_.recompute, recompute)) continue;
            layout.recompute = recompute;
            rest(layout);
          }
        }
      }
    }
  }

  // Returns the numbers of ranks that may share a copy of the state: all data ranks, and those of a
  // domain, so that parameters are gathered over its links (HSDP).
  std::vector<int> shards_of(const Layout& l) const {
    const int data = l.data_ranks();
    if (l.zero_stage == 0) return {1};
    if (!space_.shard.empty()) {
      std::vector<int> some;
      for (const int shard : space_.shard) {
        if (data % shard == 0 && (shard > 1 || l.cp > 1)) some.push_back(shard);
      }
      return some;
    }
    const int64_t inside = domain_ / (int64_t{l.tp} * l.cp);
    if (inside <= 1 || inside >= data || data % inside != 0) return {data};
    return {data, static_cast<int>(inside)};
  }

  void rest(Layout layout) {
    for (const int parallel : {0, 1}) {
      if (parallel == 1 && layout.tp == 1) continue;
      if (layout.tp > 1 && !allows(space_.sequence_parallel, parallel)) continue;
      // Without it, ranks along tp would repeat the experts' work on the same tokens.
      if (parallel == 0 && layout.tp > 1 && has_experts(job_)) continue;
      layout.sequence_parallel = parallel == 1;
      for (const Placement placement : {Placement::dp_inside, Placement::pp_inside}) {
        const bool matters = layout.pp > 1 && layout.data_ranks() > 1;
        if (placement == Placement::pp_inside && !matters) continue;
        if (matters && !allows(space_.placement, placement)) continue;
        layout.placement = placement;
        visit_(spec::filled(layout, work_));
      }
    }
  }

  const Job& job_;
  const spec::Workload work_;
  const int64_t domain_;
  const SearchOptions& options_;
  const Space& space_;
  const std::function<void(const Layout&)>& visit_;
};

}  // namespace

void for_each_layout(const Job& job, const spec::Machine& machine, const SearchOptions& options,
                     const std::function<void(const Layout&)>& visit) {
  const auto& block = spec::typical_block(job.model);
  std::vector<int64_t> tps;
  for (const int64_t tp : divisors(options.gpus)) {
    if (block.heads % tp != 0 || !allows(options.space.tp, static_cast<int>(tp))) continue;
    // Beyond two domains every collective runs at network speed, and there are more of them.
    if (options.space.tp.empty() && tp > 2 * machine.domain.size) continue;
    tps.push_back(tp);
  }
  Enumerator(job, machine, options, visit).degrees(tps);
}

}  // namespace trireme::plan
