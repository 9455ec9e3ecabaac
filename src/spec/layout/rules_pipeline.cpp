// SPDX-License-Identifier: Apache-2.0
// Rules about the pipeline: does its schedule exist for these ranks, micro-batches, layers and
// shards? rules_custom.cpp contains those of custom schedules.
#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "base/text/count_text.h"
#include "schedule/lives.h"
#include "spec/layout/rules_internal.h"
#include "spec/parallel/pipeline_parallel.h"

namespace trireme::spec {
namespace {

using schedule::Kind;
using schedule::Schedule;

constexpr unsigned all_but_schedule = Known::degrees | Known::data | Known::batch;

int64_t stages_of(const Layout& l) {
  return l.custom_schedule ? l.custom_schedule->stages() : int64_t{l.pp} * chunks_of(l);
}

schedule::Shape shape_of(const Layout& l, int64_t microbatches) {
  constexpr int64_t max = 1 << 30;  // far above the catalogue's limits
  return {.ranks = l.pp,
          .microbatches = static_cast<int>(std::min(microbatches, max)),
          .chunks = static_cast<int>(chunks_of(l))};
}

// Returns a plan with schedule and reduction only. REQUIRES: the schedule exists.
Plan order_of(const Layout& l) {
  Plan plan;
  plan.layout = l;
  plan.mesh[Axis::dp] = l.dp_replicate;
  plan.mesh[Axis::zero] = l.dp_shard;
  plan.mesh[Axis::cp] = l.cp;
  plan.schedule = l.custom_schedule
                      ? *l.custom_schedule
                      : schedule::generate(l.schedule, shape_of(l, l.rank_microbatches())).value();
  plan.first_layer_of_stage.resize(static_cast<size_t>(plan.schedule.stages()));
  return plan;
}

// Are first and last stage different stages of one rank?
bool ends_share_a_rank(const Layout& l) {
  if (l.custom_schedule) {
    const schedule::Lane& lane = l.custom_schedule->lanes.front();
    return lane.size() > 1 && lane.front() == lane.back();
  }
  return stages_of(l) > 1 && (l.pp == 1 || schedule::named(l.schedule).is_v);
}

// Returns "schedule = zb-v", or the name of the custom schedule's key.
std::string named_schedule(const RuleCase& c) {
  return is_custom(c)
             ? c.name(LayoutKey::custom_schedule)
             : fmt::format("{} = {}", c.name(LayoutKey::schedule), schedule::name_of(c.l.schedule));
}

// Returns the end of a message: schedules that complete the gradients of one micro-batch before the
// next.
std::string nearest_order(const RuleCase& c) {
  if (is_custom(c)) return "";
  if (c.l.schedule == Kind::interleaved) {
    return fmt::format(" 1f1b, or micro-batches that divide by {} = {}", c.name(LayoutKey::pp),
                       c.l.pp);
  }
  return " 1f1b, or interleaved";
}

// ---- sharded gradients: an unsharded gradient exists only during its layer's backward

bool merges_backward(const Layout& l) {
  if (!l.custom_schedule) return !schedule::named(l.schedule).splits_backward;
  return std::ranges::none_of(l.custom_schedule->program, schedule::splits_backward);
}

bool shards_in_turn(const RuleCase& c) {
  const Layout& l = c.l;
  if (!l.shards_grads() || l.has_one_stage() || !merges_backward(l)) return true;
  if (!l.custom_schedule && l.schedule == Kind::one_f_one_b) return true;
  // The head adds to its gradients in all forwards, which precede all backwards.
  if (!l.custom_schedule && l.schedule == Kind::gpipe) return l.rank_microbatches() == 1;
  const bool is_whole = l.rank_microbatches() % l.pp == 0;
  if (!l.custom_schedule && l.schedule == Kind::interleaved && is_whole) return true;
  return leaves_come_in_turn(order_of(l), true);
}

// ---- several sums in a step

bool has_several_sums(const Layout& l) {
  return l.hosted_workers() > 1 || (l.reduce == ReduceWhen::each && l.accumulation > 1);
}

std::string turn_message(const RuleCase& c, bool is_table) {
  using enum LayoutKey;
  const Layout& l = c.l;
  const int workers = l.hosted_workers();
  const std::string why =
      l.shards_grads() ? fmt::format("{} = {}", c.name(zero_stage), l.zero_stage)
      : workers > 1
          ? fmt::format("{} = {} ({} workers per rank)", c.name(logical_dp), l.logical_dp, workers)
          : fmt::format("{} = each", c.name(reduce));
  const std::string near = nearest_order(c);
  return fmt::format(
      "{}: with {} the gradients of one micro-batch must be complete before those of the next "
      "begin{}, but this schedule overlaps them; nearest:{}{}",
      named_schedule(c), why,
      is_table ? ", of the table that embedding and head share on one rank" : "",
      near.empty() ? " the order of 1f1b" : near,
      l.shards_grads() ? fmt::format(", or {} = 1", c.name(zero_stage)) : "");
}

std::string stages_message(const RuleCase& c) {
  using enum LayoutKey;
  const int64_t layers = c.model.layers, of_rank = chunks_of(c.l);
  const int64_t max = std::max<int64_t>(1, layers / of_rank);
  const std::string nearest =
      is_custom(c) ? fmt::format("{} stages", layers)
      : max > 1    ? fmt::format("{} = {}", c.name(pp), max)
                   : fmt::format("{} = {}", c.name(LayoutKey::chunks), layers / c.l.pp);
  return fmt::format(
      "{} = {}: that makes {} stages ({} on each rank), but the model has {} layers with embedding "
      "and head; nearest: {}",
      c.name(pp), c.l.pp, stages_of(c.l), of_rank, layers, nearest);
}

bool first_layers_hold(const RuleCase& c) {
  const std::vector<int>& first = c.l.first_layers;
  if (first.empty() || c.model.layers == 0) return true;
  const bool is_rising =
      std::adjacent_find(first.begin(), first.end(), std::greater_equal<>()) == first.end();
  return static_cast<int64_t>(first.size()) == stages_of(c.l) && first.front() == 0 && is_rising &&
         first.back() < c.model.layers;
}

std::string shape_message(const RuleCase& c) {
  using enum LayoutKey;
  const Layout& l = c.l;
  const int workers = l.hosted_workers();
  std::string nearest;
  for (int64_t m = l.accumulation + 1; m <= l.accumulation + 4 * int64_t{l.pp}; ++m) {
    if (schedule::refusal(l.schedule, shape_of(l, m * workers))) continue;
    nearest =
        fmt::format("; nearest: {} = {}", c.name(global_batch), m * l.micro_batch * l.logical_dp);
    break;
  }
  return fmt::format("{} = {}: a rank runs {} in a step: {}{}", c.name(global_batch),
                     l.global_batch(),
                     base::count_text(l.rank_microbatches(), "micro-batch", "micro-batches"),
                     *schedule::refusal(l.schedule, shape_of(l, l.rank_microbatches())), nearest);
}

}  // namespace

std::vector<Rule> pipeline_rules() {
  using enum LayoutKey;
  constexpr unsigned everything = all_but_schedule | Known::schedule | Known::cut;
  return {
      {.id = "schedule.lanes",
       .whose = Whose::any,
       .keys = {LayoutKey::schedule},
       .spoils = Known::schedule,
       .holds = [](const RuleCase& c) { return is_custom(c) || c.l.schedule != Kind::dualpipe; },
       .message =
           [](const RuleCase& c) {
             return fmt::format(
                 "{} = dualpipe: its two lanes need every stage's parameters twice, "
                 "which neither planner nor engine supports; nearest: "
                 "dualpipe-v, the same overlap in one lane",
                 c.name(LayoutKey::schedule));
           }},
      {.id = "schedule.chunks",
       .whose = Whose::any,
       .keys = {chunks, LayoutKey::schedule},
       .needs = Known::degrees | Known::schedule,
       .spoils = Known::schedule,
       .holds =
           [](const RuleCase& c) {
             const int own = schedule::named(c.l.schedule).chunks;
             return is_custom(c) || c.l.has_one_stage() ||
                    (own == 0 ? c.l.chunks >= 1 : c.l.chunks == own);
           },
       .message =
           [](const RuleCase& c) {
             const int own = schedule::named(c.l.schedule).chunks;
             return fmt::format(
                 "{} = {}: {} has {} per rank; nearest: {}, or {} = interleaved, which allows any",
                 c.name(chunks), c.l.chunks, schedule::name_of(c.l.schedule), own, own,
                 c.name(LayoutKey::schedule));
           }},
      {.id = "pp.stages",
       .whose = Whose::any,
       .keys = {pp, custom_schedule, chunks, LayoutKey::schedule, model},
       .needs = Known::degrees | Known::schedule,
       .spoils = Known::cut,
       .holds =
           [](const RuleCase& c) {
             return c.l.has_one_stage() || c.model.layers == 0 || stages_of(c.l) <= c.model.layers;
           },
       .message = stages_message},
      {.id = "pp.first_layers",
       .whose = Whose::any,
       .keys = {first_layers, pp, chunks, LayoutKey::schedule, model},
       .needs = Known::degrees | Known::schedule | Known::cut,
       .spoils = Known::cut,
       .holds = first_layers_hold,
       .message =
           [](const RuleCase& c) {
             const int64_t last = c.model.layers - 1;
             return fmt::format(
                 "{} = [{}]: must be the first layers of the {} stages, ascending from "
                 "0 to {} at most (0 is the embedding, {} the head), or empty",
                 c.name(first_layers), fmt::join(c.l.first_layers, ", "), stages_of(c.l), last,
                 last);
           }},
      {.id = "schedule.micro_batches",
       .whose = Whose::any,
       .keys = {global_batch, LayoutKey::schedule, pp, micro_batch},
       .needs = everything,
       .spoils = Known::schedule,
       .holds =
           [](const RuleCase& c) {
             return is_custom(c) || c.l.has_one_stage() ||
                    !schedule::refusal(c.l.schedule, shape_of(c.l, c.l.rank_microbatches()));
           },
       .message = shape_message},
      {.id = "zero.split_backward",
       .whose = Whose::engine,
       .keys = {LayoutKey::schedule, custom_schedule, zero_stage, dp_shard},
       .needs = everything,
       .spoils = Known::schedule,
       .holds =
           [](const RuleCase& c) {
             return !c.l.shards_grads() || c.l.has_one_stage() || merges_backward(c.l);
           },
       .message =
           [](const RuleCase& c) {
             const std::string near = nearest_order(c);
             return fmt::format(
                 "{}: with {} = {} B and W must be merged (BW), because the unsharded gradient of "
                 "a "
                 "layer exists only during its backward; nearest: {} = 1{}{}",
                 named_schedule(c), c.name(zero_stage), c.l.zero_stage, c.name(zero_stage),
                 near.empty() ? "" : ", or", near);
           }},
      {.id = "zero.order",
       .whose = Whose::engine,
       .keys = {LayoutKey::schedule, custom_schedule, zero_stage},
       .needs = everything,
       .spoils = Known::schedule,
       .holds = shards_in_turn,
       .message = [](const RuleCase& c) { return turn_message(c, false); }},
      {.id = "reduce.order",
       .whose = Whose::engine,
       .keys = {LayoutKey::schedule, custom_schedule, logical_dp, reduce},
       .needs = everything,
       .spoils = Known::schedule,
       .holds =
           [](const RuleCase& c) {
             return c.l.shards_grads() || c.l.has_one_stage() || !has_several_sums(c.l) ||
                    leaves_come_in_turn(order_of(c.l), false);
           },
       .message = [](const RuleCase& c) { return turn_message(c, false); }},
      {.id = "reduce.tied_order",
       .whose = Whose::engine,
       .keys = {LayoutKey::schedule, custom_schedule, logical_dp, reduce, model},
       .needs = everything,
       .holds =
           [](const RuleCase& c) {
             return !c.model.is_tied || !ends_share_a_rank(c.l) || !has_several_sums(c.l) ||
                    tied_leaves_come_in_turn(order_of(c.l));
           },
       .message = [](const RuleCase& c) { return turn_message(c, true); }},
      {.id = "zero.tied_stages",
       .whose = Whose::engine,
       .keys = {zero_stage, LayoutKey::schedule, custom_schedule, model},
       .needs = everything,
       .holds =
           [](const RuleCase& c) {
             return !c.model.is_tied || !c.l.shards_params() || !ends_share_a_rank(c.l);
           },
       .message =
           [](const RuleCase& c) {
             return fmt::format(
                 "{} = 3: the model has a tied head, and its first and last stage are different "
                 "stages of one rank; nearest: {} = 2, or a schedule whose last stage is on "
                 "another rank",
                 c.name(zero_stage), c.name(zero_stage));
           }},
      {.id = "zero.pairs",
       .whose = Whose::engine,
       .keys = {reshard, custom_schedule, LayoutKey::schedule},
       .needs = everything,
       .holds =
           [](const RuleCase& c) {
             return !is_custom(c) || !c.l.shards_params() || c.l.keeps_params() ||
                    std::ranges::none_of(c.l.custom_schedule->program, schedule::has_pairs);
           },
       .message =
           [](const RuleCase& c) {
             return fmt::format(
                 "{} = {}: the schedule overlaps an F with a backward, and both gather "
                 "sharded parameters: they must stay for the whole step; nearest: "
                 "never",
                 c.name(reshard), name_of(c.l.reshard));
           }},
  };
}

}  // namespace trireme::spec
