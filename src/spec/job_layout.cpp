// SPDX-License-Identifier: Apache-2.0
#include "spec/job_layout.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "spec/job_degrees.h"
#include "spec/job_pipeline.h"

namespace trireme::spec {
namespace {

class Checker {
 public:
  Checker(const ModelDims& dims, const JobLayout& asked, const LayoutNames& names)
      : names_(names), asked_(asked), check_{asked, {}}, rules_(dims, asked) {}

  LayoutCheck run() {
    const bool is_solved = solve_degrees(rules_, asked_, names_, check_);
    check_tp();
    check_tokens();
    bool has_batch = false;
    if (is_solved) {
      const size_t before = check_.problems.size();
      solve_data();
      check_data();
      has_batch = check_.problems.size() == before;
    }
    for (LayoutProblem& problem : check_pipeline(rules_, layout(), names_, has_batch)) {
      check_.problems.push_back(std::move(problem));
    }
    return std::move(check_);
  }

 private:
  JobLayout& layout() { return check_.layout; }
  const std::string& name(LayoutKey key) const { return names_[static_cast<size_t>(key)]; }
  void add(std::vector<LayoutKey> keys, std::string text) {
    check_.problems.push_back({std::move(keys), std::move(text)});
  }

  // ---- the model and tp

  std::string nearest_tp() const {
    int64_t common = asked_.world;
    for (const auto& [what, size] : rules_.tp_cuts()) common = std::gcd(common, size);
    const int64_t tp = check_.layout.tp;
    int64_t below = 1, above = 0;
    for (int64_t d = 1; d * d <= common; ++d) {
      if (common % d != 0) continue;
      for (const int64_t divisor : {d, common / d}) {
        if (!rules_.tp_is_legal(divisor)) continue;
        if (divisor < tp) below = std::max(below, divisor);
        if (divisor > tp && (above == 0 || divisor < above)) above = divisor;
      }
    }
    return above == 0 ? fmt::format("{}", below) : fmt::format("{} or {}", below, above);
  }

  void check_tp() {
    const int64_t tp = layout().tp;
    if (rules_.tp_is_legal(tp)) return;
    std::vector<std::string> broken;
    for (const auto& [what, size] : rules_.tp_cuts()) {
      if (size % tp != 0) broken.push_back(fmt::format("{} = {}", what, size));
    }
    if (broken.empty()) {
      add({LayoutKey::tp, LayoutKey::model},
          fmt::format("{} = {}: a vocabulary of {} leaves a rank without a row; nearest: {}",
                      name(LayoutKey::tp), tp, rules_.vocab(), nearest_tp()));
      return;
    }
    add({LayoutKey::tp, LayoutKey::model},
        fmt::format("{} = {}: {} {} not divide by it; nearest: {}", name(LayoutKey::tp), tp,
                    joined(broken, "and"), broken.size() == 1 ? "does" : "do", nearest_tp()));
  }

  void check_tokens() {
    const JobLayout& l = layout();
    const int64_t tokens = l.local_batch * l.seq_len;
    if (!l.sequence_parallel || l.tp == 1 || tokens % l.tp == 0) return;
    const int64_t unit = l.tp / std::gcd(l.tp, l.local_batch);
    add({LayoutKey::seq_len, LayoutKey::local_batch, LayoutKey::tp, LayoutKey::sequence_parallel},
        fmt::format("{} = {}: with {} the {} tokens of a micro-batch must divide by {} = {}; "
                    "nearest: {}",
                    name(LayoutKey::seq_len), l.seq_len, name(LayoutKey::sequence_parallel), tokens,
                    name(LayoutKey::tp), l.tp, nearest_multiples(l.seq_len, unit)));
  }

  // ---- workers, batch, and what is sharded

  void solve_data() {
    JobLayout& l = layout();
    if (l.zero == 1) {
      l.zero_stage = 0;
    } else if (l.zero_stage == -1) {
      l.zero_stage = 3;
    }
    if (l.logical_dp == 0) l.logical_dp = l.data_ranks();
    if (l.global_batch == -1) l.global_batch = l.local_batch * l.logical_dp;
    const bool needs_each = l.zero_stage >= 2 && l.microbatches() > 1;
    if (!l.reduce) l.reduce = needs_each ? ReduceWhen::each : ReduceWhen::once;
  }

  void check_data() {
    const JobLayout& l = layout();
    const int64_t ranks = l.data_ranks();
    if (ranks > most_degree) {
      add({LayoutKey::zero, LayoutKey::dp},
          fmt::format("{} = {}: with {} = {} at most {} data ranks; nearest: {}",
                      name(LayoutKey::zero), l.zero, name(LayoutKey::dp), l.dp, most_degree,
                      most_degree / l.dp));
      return;
    }
    if (l.zero > 1 && l.zero_stage == 0) {
      add({LayoutKey::zero_stage, LayoutKey::zero},
          fmt::format("{} = 0: shards nothing over {} = {}; nearest: 1, or {} = {} with {} = 1",
                      name(LayoutKey::zero_stage), name(LayoutKey::zero), l.zero,
                      name(LayoutKey::dp), ranks, name(LayoutKey::zero)));
    }
    if (l.logical_dp % ranks != 0) {
      add({LayoutKey::logical_dp, LayoutKey::dp, LayoutKey::zero},
          fmt::format("{} = {}: must be a multiple of the {} data ranks; nearest: {}",
                      name(LayoutKey::logical_dp), l.logical_dp, ranks,
                      nearest_multiples(l.logical_dp, ranks)));
      return;
    }
    const int64_t unit = l.local_batch * l.logical_dp;
    if (l.global_batch % unit != 0) {
      const std::string workers =
          l.logical_dp == 1
              ? ""
              : fmt::format(" x {} {} = {}", l.logical_dp,
                            l.logical_dp == ranks ? "data ranks" : "workers (logical_dp)", unit);
      add({LayoutKey::global_batch, LayoutKey::local_batch, LayoutKey::dp, LayoutKey::zero,
           LayoutKey::logical_dp},
          fmt::format("{} = {}: must be a multiple of {} = {}{}; nearest: {}",
                      name(LayoutKey::global_batch), l.global_batch, name(LayoutKey::local_batch),
                      l.local_batch, workers, nearest_multiples(l.global_batch, unit)));
      return;
    }
    if (l.zero_stage >= 2 && l.microbatches() > 1 && l.reduce == ReduceWhen::once) {
      add({LayoutKey::reduce, LayoutKey::zero_stage, LayoutKey::global_batch},
          fmt::format("{} = once: with {} = {} and {} micro-batches a worker gradients are summed "
                      "after each, because a whole one lives only as long as its layer's backward; "
                      "nearest: each, or {} = 1",
                      name(LayoutKey::reduce), name(LayoutKey::zero_stage), l.zero_stage,
                      l.microbatches(), name(LayoutKey::zero_stage)));
    }
  }

  const LayoutNames& names_;
  const JobLayout asked_;
  LayoutCheck check_;
  const DegreeRules rules_;
};

}  // namespace

LayoutNames layout_names() {
  return {"dp",          "zero",         "tp",           "pp",
          "zero_stage",  "logical_dp",   "reduce",       "sequence_parallel",
          "local_batch", "global_batch", "seq_len",      "schedule",
          "chunks",      "own_schedule", "first_layers", "model"};
}

LayoutCheck check_layout(const ModelDims& dims, JobLayout asked, const LayoutNames& names) {
  TRIREME_CHECK((asked.dp == -1) + (asked.zero == -1) + (asked.tp == -1) + (asked.pp == -1) <= 1,
                "dp = {}, zero = {}, tp = {}, pp = {}: one at most can be what is left", asked.dp,
                asked.zero, asked.tp, asked.pp);
  return Checker(dims, asked, names).run();
}

SplitOptions split_of(const JobLayout& layout) {
  TRIREME_CHECK(layout.dp > 0 && layout.zero > 0 && layout.tp > 0 && layout.pp > 0 &&
                    layout.zero_stage >= 0 && layout.logical_dp > 0 && layout.reduce,
                "a layout with {} x {} x {} x {} ranks that was not checked", layout.dp,
                layout.zero, layout.tp, layout.pp);
  SplitOptions split;
  split.dp = static_cast<int>(layout.dp);
  split.zero = static_cast<int>(layout.zero);
  split.tp = static_cast<int>(layout.tp);
  split.sequence_parallel = layout.sequence_parallel && layout.tp > 1;
  split.residency = {.params = layout.zero_stage >= 3,
                     .grads = layout.zero_stage >= 2,
                     .optim = layout.zero_stage >= 1};
  split.logical_dp = static_cast<int>(layout.logical_dp);
  split.reduce = *layout.reduce;
  split.pp = static_cast<int>(layout.pp);
  split.schedule = layout.schedule;
  split.chunks = static_cast<int>(layout.chunks);
  split.own_schedule = layout.own_schedule;
  split.first_layer_of_stage.assign(layout.first_layers.begin(), layout.first_layers.end());
  if (layout.pp == 1 && layout.chunks == 0 && !layout.own_schedule) {
    split.first_layer_of_stage.clear();
  }
  split.send_buffers = static_cast<int>(layout.send_buffers);
  split.keep_params = split.residency.params && layout.keep_params.value_or(layout.pp > 1);
  return split;
}

}  // namespace trireme::spec
