// SPDX-License-Identifier: Apache-2.0
#include "spec/job_pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "base/count_text.h"
#include "schedule/catalogue.h"
#include "schedule/lives.h"
#include "spec/pipeline_parallel.h"

namespace trireme::spec {
namespace {

using schedule::Schedule;

// Those that the engine executes: all with one lane.
std::string executed_names() {
  std::vector<std::string> names;
  for (const schedule::Named& named : schedule::catalogue()) {
    if (named.name != "dualpipe") names.emplace_back(named.name);
  }
  return joined(names, "or");
}

class PipelineChecker {
 public:
  PipelineChecker(const DegreeRules& rules, const JobLayout& layout, const LayoutNames& names)
      : rules_(rules), l_(layout), names_(names) {}

  std::vector<LayoutProblem> run(bool has_batch) {
    const bool is_one_stage = l_.pp == 1 && l_.chunks == 0 && !l_.own_schedule;
    if (l_.own_schedule) {
      check_own(has_batch);
    } else {
      check_name(is_one_stage);
    }
    check_cut(is_one_stage);
    if (!problems_.empty() || !has_batch || is_one_stage || rules_.layers() == 0) {
      return std::move(problems_);
    }
    if (l_.own_schedule) {
      check_shards(*l_.own_schedule);
    } else if (const auto made = named_schedule(l_.rank_microbatches())) {
      check_shards(made.value());
    } else {
      refuse_batch(made.reason());
    }
    return std::move(problems_);
  }

 private:
  const std::string& name(LayoutKey key) const { return names_[static_cast<size_t>(key)]; }
  void add(std::vector<LayoutKey> keys, std::string text) {
    problems_.push_back({std::move(keys), std::move(text)});
  }
  int64_t stages() const {
    return l_.own_schedule ? l_.own_schedule->stages() : l_.pp * rules_.chunks();
  }

  void check_name(bool is_one_stage) {
    const auto named = schedule::find_named(l_.schedule);
    if (!named) {
      add({LayoutKey::schedule},
          fmt::format("{} = {}: there is no such schedule; there are {}", name(LayoutKey::schedule),
                      l_.schedule, executed_names()));
      return;
    }
    if (named.value().name == "dualpipe") {
      add({LayoutKey::schedule},
          fmt::format("{} = {}: its two lanes keep every stage's parameters twice, which this "
                      "build does not execute; nearest: dualpipe-v, the same overlap in one lane",
                      name(LayoutKey::schedule), l_.schedule));
      return;
    }
    const int own = named.value().chunks;
    if (is_one_stage || l_.chunks == 0 || own == 0 || l_.chunks == own) return;
    add({LayoutKey::chunks, LayoutKey::schedule},
        fmt::format("{} = {}: {} has {} a rank; nearest: {}, or {} = interleaved, which takes any",
                    name(LayoutKey::chunks), l_.chunks, named.value().name, own, own,
                    name(LayoutKey::schedule)));
  }

  void check_own(bool has_batch) {
    const Schedule& own = *l_.own_schedule;
    const LayoutKey key = LayoutKey::own_schedule;
    if (own.ranks != l_.pp) {
      add({key, LayoutKey::pp},
          fmt::format("{}: it is for {} ranks, and {} = {}; nearest: {} = {}", name(key), own.ranks,
                      name(LayoutKey::pp), l_.pp, name(LayoutKey::pp), own.ranks));
      return;
    }
    if (own.lanes.size() > 1) {
      add({key}, fmt::format("{}: its two lanes keep every stage's parameters twice, which this "
                             "build does not execute; use one lane for all micro-batches",
                             name(key)));
      return;
    }
    const auto fault = schedule::find_fault(
        schedule::add_missing(own), static_cast<int>(std::max<int64_t>(l_.send_buffers, 1)));
    if (fault) {
      add({key}, fmt::format("{}: {}", name(key), fault->reason));
      return;
    }
    const auto recomputes = [](const std::vector<schedule::Action>& program) {
      return std::ranges::find(program, schedule::Op::R, &schedule::Action::op) != program.end();
    };
    if (std::ranges::any_of(own.program, recomputes)) {
      add({key}, fmt::format("{}: it recomputes whole stages early (R), and this build recomputes "
                             "layer by layer; leave R out",
                             name(key)));
      return;
    }
    if (!has_batch || own.microbatches == l_.rank_microbatches()) return;
    const int64_t workers = l_.logical_dp / l_.data_ranks();
    std::string nearest;
    if (own.microbatches % workers == 0) {
      nearest = fmt::format("; nearest: {} = {}", name(LayoutKey::global_batch),
                            own.microbatches / workers * l_.local_batch * l_.logical_dp);
    }
    add({key, LayoutKey::global_batch},
        fmt::format("{}: it has {}, and a rank runs {} in a step{}", name(key),
                    base::count_text(own.microbatches, "micro-batch", "micro-batches"),
                    l_.rank_microbatches(), nearest));
  }

  void check_cut(bool is_one_stage) {
    if (!problems_.empty() || is_one_stage) return;
    const int64_t layers = rules_.layers(), count = stages();
    if (layers != 0 && count > layers) {
      const int64_t most = std::max<int64_t>(1, layers / rules_.chunks());
      const std::string nearest =
          l_.own_schedule ? fmt::format("{} stages", layers)
          : most > 1      ? fmt::format("{} = {}", name(LayoutKey::pp), most)
                          : fmt::format("{} = {}", name(LayoutKey::chunks), layers / l_.pp);
      add({LayoutKey::pp, LayoutKey::own_schedule, LayoutKey::chunks, LayoutKey::schedule,
           LayoutKey::model},
          fmt::format("{} = {}: that makes {} stages ({} on each rank), and the model has {} "
                      "layers with embedding and head; nearest: {}",
                      name(LayoutKey::pp), l_.pp, count, rules_.chunks(), layers, nearest));
      return;
    }
    const std::vector<int64_t>& first = l_.first_layers;
    if (first.empty() || layers == 0) return;
    const bool is_rising =
        std::adjacent_find(first.begin(), first.end(), std::greater_equal<>()) == first.end();
    if (static_cast<int64_t>(first.size()) == count && first.front() == 0 && is_rising &&
        first.back() < layers) {
      return;
    }
    add({LayoutKey::first_layers, LayoutKey::pp, LayoutKey::chunks, LayoutKey::schedule,
         LayoutKey::model},
        fmt::format("{} = [{}]: must be the first layers of the {} stages, rising from 0 to {} at "
                    "most (0 is the embedding, {} the head), or empty",
                    name(LayoutKey::first_layers), fmt::join(first, ", "), count, layers - 1,
                    layers - 1));
  }

  base::Result<Schedule> named_schedule(int64_t microbatches) const {
    constexpr int64_t most = 1 << 30;  // far above what the catalogue takes
    return schedule::generate(l_.schedule,
                              {.ranks = static_cast<int>(l_.pp),
                               .microbatches = static_cast<int>(std::min(microbatches, most)),
                               .chunks = static_cast<int>(l_.chunks)});
  }

  void refuse_batch(const std::string& reason) {
    const int64_t workers = l_.logical_dp / l_.data_ranks();
    std::string nearest;
    for (int64_t m = l_.microbatches() + 1; m <= l_.microbatches() + 4 * l_.pp; ++m) {
      if (!named_schedule(m * workers)) continue;
      nearest = fmt::format("; nearest: {} = {}", name(LayoutKey::global_batch),
                            m * l_.local_batch * l_.logical_dp);
      break;
    }
    add({LayoutKey::global_batch, LayoutKey::schedule, LayoutKey::pp, LayoutKey::local_batch},
        fmt::format("{} = {}: a rank runs {} in a step: {}{}", name(LayoutKey::global_batch),
                    l_.global_batch,
                    base::count_text(l_.rank_microbatches(), "micro-batch", "micro-batches"),
                    reason, nearest));
  }

  // Gradients that are summed in turns need a schedule that makes them so.
  void check_shards(const Schedule& schedule) {
    const bool shards_grads = l_.zero_stage >= 2;
    const int64_t workers = l_.logical_dp / l_.data_ranks();
    const bool is_each = l_.reduce == ReduceWhen::each && l_.microbatches() > 1;
    if (!shards_grads && workers == 1 && !is_each) return;
    const LayoutKey of = l_.own_schedule ? LayoutKey::own_schedule : LayoutKey::schedule;
    const std::string what =
        l_.own_schedule ? name(of) : fmt::format("{} = {}", name(of), l_.schedule);
    const auto named = schedule::find_named(l_.schedule);
    const bool is_interleaved = named && named.value().name == "interleaved";
    const std::string other = l_.own_schedule ? ""
                              : is_interleaved
                                  ? fmt::format(" 1f1b, or micro-batches that divide by {} = {}",
                                                name(LayoutKey::pp), l_.pp)
                                  : " 1f1b, or interleaved";
    if (shards_grads && std::ranges::any_of(schedule.program, schedule::splits_backward)) {
      add({of, LayoutKey::zero_stage, LayoutKey::zero},
          fmt::format("{}: with {} = {} B and W must be one (BW), because the whole gradient of a "
                      "layer lives only as long as its backward; nearest: {} = 1{}{}",
                      what, name(LayoutKey::zero_stage), l_.zero_stage, name(LayoutKey::zero_stage),
                      other.empty() ? "" : ", or", other));
      return;
    }
    Plan plan;
    plan.mesh[Axis::dp] = static_cast<int>(l_.dp);
    plan.mesh[Axis::zero] = static_cast<int>(l_.zero);
    plan.schedule = schedule;
    plan.first_layer_of_stage.resize(static_cast<size_t>(schedule.stages()));
    plan.logical_dp = static_cast<int>(l_.logical_dp);
    plan.reduce = *l_.reduce;
    const bool is_in_turn = leaves_come_in_turn(plan, shards_grads);
    const bool is_table_in_turn = !rules_.is_tied() || tied_leaves_come_in_turn(plan);
    if (is_in_turn && is_table_in_turn) return;
    const std::string why =
        shards_grads  ? fmt::format("{} = {}", name(LayoutKey::zero_stage), l_.zero_stage)
        : workers > 1 ? fmt::format("{} = {} ({} workers a rank)", name(LayoutKey::logical_dp),
                                    l_.logical_dp, workers)
                      : fmt::format("{} = each", name(LayoutKey::reduce));
    const LayoutKey with = shards_grads  ? LayoutKey::zero_stage
                           : workers > 1 ? LayoutKey::logical_dp
                                         : LayoutKey::reduce;
    add({of, with},
        fmt::format(
            "{}: with {} the gradients of one micro-batch must be complete before those "
            "of the next begin{}, which this schedule does not keep to; nearest:{}{}",
            what, why, is_in_turn ? ", of the table that embedding and head share on one rank" : "",
            other.empty() ? " an order as of 1f1b" : other,
            with == LayoutKey::zero_stage ? fmt::format(", or {} = 1", name(LayoutKey::zero_stage))
                                          : ""));
  }

  const DegreeRules& rules_;
  const JobLayout& l_;
  const LayoutNames& names_;
  std::vector<LayoutProblem> problems_;
};

}  // namespace

std::vector<LayoutProblem> check_pipeline(const DegreeRules& rules, const JobLayout& layout,
                                          const LayoutNames& names, bool has_batch) {
  return PipelineChecker(rules, layout, names).run(has_batch);
}

}  // namespace trireme::spec
