// SPDX-License-Identifier: Apache-2.0
// Formats the report of the planner as JSON.
#include <algorithm>
#include <cmath>

#include "base/text/json.h"
#include "cli/plan/plan_report.h"
#include "cli/plan/plan_words.h"
#include "spec/layout/layout_text.h"

namespace trireme::cli {
namespace {

using base::Json;
using plan::Item;
using plan::Term;

Json layout_json(const spec::Layout& l) {
  return {{"text", spec::to_text(l)},
          {"tp", l.tp},
          {"sequence_parallel", l.sequence_parallel},
          {"cp", l.cp},
          {"pp", l.pp},
          {"schedule", std::string(schedule::name_of(l.schedule))},
          {"chunks", l.chunks},
          {"dp", l.data_ranks()},
          {"zero", l.zero_stage},
          {"ep", l.ep},
          {"etp", l.etp},
          {"row_budget", l.row_budget},
          {"micro_batch", l.micro_batch},
          {"recompute", std::string(spec::name_of(l.recompute))},
          {"precision", std::string(spec::name_of(l.precision))},
          {"placement", std::string(spec::name_of(l.placement))},
          {"gpus", l.ranks()},
          {"settings", spec::to_json(l)}};
}

// Rounds to whole bytes; `bytes` is the sum of the rounded items.
Json price_json(const plan::Price& price) {
  Json terms = Json::object(), items = Json::object();
  for (size_t i = 0; i < price.seconds_of.size(); ++i) {
    terms[std::string(plan::name_of(static_cast<Term>(i)))] = price.seconds_of[i];
  }
  int64_t bytes = 0;
  for (size_t i = 0; i < price.bytes_of.size(); ++i) {
    const int64_t item = std::llround(price.bytes_of[i]);
    items[std::string(plan::name_of(static_cast<Item>(i)))] = item;
    bytes += item;
  }
  return {{"seconds", price.seconds},
          {"terms", terms},
          {"bytes", bytes},
          {"items", items},
          {"model_flops", price.model_flops},
          {"hardware_flops", price.hardware_flops}};
}

Json candidate_json(const plan::Candidate& c) {
  Json json = price_json(c.price);
  json["layout"] = layout_json(c.layout);
  return json;
}

Json run_json(const std::optional<plan::RunCost>& run) {
  if (!run) return nullptr;
  return {{"tokens", run->tokens},
          {"steps", run->steps},
          {"days", run->days},
          {"gpu_hours", run->gpu_hours},
          {"dollars", run->dollars ? Json(*run->dollars) : Json()}};
}

}  // namespace

Json planned_json(const PlanQuestion& q, const PlannedLayout& planned) {
  const plan::Proposal& p = planned.proposal;
  Json json = candidate_json({p.layout, planned.price});
  json["name"] = named_layout(p.layout);
  json["kind"] = std::string(plan::name_of(plan::kind_of(p.layout)));
  json["bytes"] = planned.bytes;
  json["items"] = Json::object();
  for (const MemoryItem& item : planned.items) json["items"][item.name] = item.bytes;
  json["tokens_per_second"] = planned.rates.tokens;
  json["mfu"] = planned.rates.mfu;
  json["hfu"] = planned.rates.hfu;
  json["fits"] = planned.fits;
  json["headroom_bytes"] = std::llround(q.machine.processor.memory_bytes) - planned.bytes;
  json["confirmed"] = {{"seconds", planned.seconds()},      {"bytes", planned.bytes},
                       {"is_exact", p.is_engine_plan},      {"bubble_seconds", p.confirmed.bubble},
                       {"priced_seconds", p.price.seconds}, {"problem", p.confirmed.problem}};
  if (planned.phases) {
    json["phases"] = {{"start_bytes", planned.phases->start},
                      {"load_bytes", planned.phases->load},
                      {"step_bytes", planned.phases->step},
                      {"save_host_bytes", planned.phases->save_host},
                      {"copies_host_bytes", planned.phases->copies_host},
                      {"kept_copies_host_bytes", planned.phases->kept_host},
                      {"buffers_host_bytes", planned.phases->buffers_host}};
  }
  const std::optional<double> fixed_order = fixed_order_seconds(q, planned);
  json["fixed_order_seconds"] = fixed_order ? Json(*fixed_order) : Json(nullptr);
  json["band"] = {{"time", p.band.time}, {"memory", p.band.memory}, {"warnings", p.band.warnings}};
  json["run"] = run_json(planned.run);
  return json;
}

namespace {

// With `over`: adds each time relative to that one.
Json planned_list(const PlanQuestion& q, const std::vector<PlannedLayout>& list,
                  std::optional<double> over = {}) {
  Json all = Json::array();
  for (const PlannedLayout& planned : list) {
    all.push_back(planned_json(q, planned));
    if (over) all.back()["time_change"] = planned.seconds() / *over - 1;
  }
  return all;
}

Json planned_or_null(const PlanQuestion& q, const std::optional<PlannedLayout>& planned) {
  return planned ? planned_json(q, *planned) : Json(nullptr);
}

Json question_json(const PlanQuestion& q) {
  return {{"model", q.job.model.name},
          {"parameters", spec::parameter_count(q.job.model)},
          {"active_parameters", spec::active_parameter_count(q.job.model)},
          {"expert_imbalance", q.job.expert_imbalance},
          {"machine", q.machine.name},
          {"memory_bytes", std::llround(q.machine.processor.memory_bytes)},
          {"domain_size", q.machine.domain.size},
          {"memory_fraction", q.memory_fraction},
          {"stack", q.stack.name},
          {"grad_bytes", plan::grad_bytes(q.stack, q.types)},
          {"optimizer_bytes", plan::optimizer_bytes(q.stack, q.types)},
          {"gpus", q.gpus},
          {"global_batch", q.job.global_batch},
          {"seq_len", q.job.seq_len},
          {"dollars_per_gpu_hour", q.dollars_per_gpu_hour ? Json(*q.dollars_per_gpu_hour) : Json()},
          {"assumed", q.assumed},
          {"taken", q.assumed},  // "taken": the old name of "assumed"
          {"ignored", q.ignored}};
}

void add_nothing_fits(const PlanReport& r, Json& json) {
  json["nearest"] = planned_or_null(r.question, r.nearest);
  json["changes"] = Json::array();
  json["change_layouts"] = Json::array();
  for (const PlannedChange& change : r.changes) {
    json["changes"].push_back(change_text(change));
    json["change_layouts"].push_back(planned_json(r.question, change.layout));
    json["change_layouts"].back()["change"] = change.what;
  }
  json["state"] = nullptr;
  if (r.answer.state) {
    const plan::StateNeed& need = *r.answer.state;
    json["state"] = {{"bytes", std::llround(need.bytes)},
                     {"bytes_per_parameter", need.bytes_per_parameter},
                     {"min_gpus", need.min_gpus}};
  }
}

// What the terms of a step and the items of memory mean.
Json meanings_json(const PlanReport& r) {
  Json terms = Json::object(), items = Json::object();
  for (size_t i = 0; i < static_cast<size_t>(Term::count); ++i) {
    const auto term = static_cast<Term>(i);
    terms[std::string(plan::name_of(term))] = plan::meaning_of(term);
  }
  for (const auto* planned : {&r.best, &r.nearest}) {
    if (!*planned) continue;
    for (const MemoryItem& item : (*planned)->items) items[item.name] = item.meaning;
  }
  return {{"terms", terms}, {"items", items}};
}

Json precisions_json(const PlanReport& r) {
  Json all = Json::array();
  for (const PlannedPrecision& own : r.precisions) {
    Json json = {{"precision", std::string(spec::name_of(own.precision))},
                 {"best", planned_or_null(r.question, own.best)},
                 {"time_change", nullptr},
                 {"reason", own.reason}};
    if (own.best) json["time_change"] = own.best->seconds() / r.best->seconds() - 1;
    all.push_back(json);
  }
  return all;
}

Json textbook_json(const PlanReport& r) {
  const plan::Textbook& textbook = r.answer.textbook;
  Json steps = Json::array();
  for (const plan::TextbookStep& step : textbook.steps) {
    steps.push_back({{"what", step.what}, {"why", step.why}});
  }
  Json json = {{"layout", textbook.layout ? Json(spec::to_text(*textbook.layout)) : Json()},
               {"name", r.textbook ? Json(named_layout(r.textbook->proposal.layout)) : Json()},
               {"seconds", r.textbook ? Json(r.textbook->seconds()) : Json()},
               {"steps", steps}};
  if (r.textbook && r.best) {
    json["fits"] = r.textbook->fits;
    json["time_change"] = r.textbook->seconds() / r.best->seconds() - 1;
    json["departures"] = departures_of(r);
  }
  return json;
}

Json rejected_json(const PlanReport& r) {
  Json all = Json::array();
  for (const plan::Rejected& one : r.answer.search.rejected) {
    all.push_back({{"tp", one.tp},
                   {"cp", one.cp},
                   {"pp", one.pp},
                   {"ep", one.ep},
                   {"reason", rejection_text(r.question, one)},
                   {"missing_bytes", one.missing_bytes},
                   {"nearest", one.nearest ? Json(spec::to_text(*one.nearest)) : Json()}});
  }
  return all;
}

Json search_json(const plan::SearchResult& found) {
  return {
      {"layouts", found.layouts},
      {"priced", found.priced},
      {"pruned", found.pruned},
      {"too_large", found.too_large},
      {"seconds", found.seconds},
      {"layouts_per_second", static_cast<double>(found.priced) / std::max(found.seconds, 1e-9)}};
}

}  // namespace

Json answer_json(const PlanReport& r) {
  const PlanQuestion& q = r.question;
  const plan::SearchResult& found = r.answer.search;
  Json json = {{"ok", r.best.has_value()}};
  json.update(question_json(q));
  add_nothing_fits(r, json);
  json["best"] = planned_or_null(q, r.best);
  json["run"] = r.best ? run_json(r.best->run) : Json(nullptr);
  json["asked"] = planned_or_null(q, r.asked);
  json["tolerance"] = r.answer.tolerance;
  std::optional<double> best, asked;
  if (r.best) best = r.best->seconds();
  if (r.asked) asked = r.asked->seconds();
  json["better"] = planned_list(q, r.better, asked);
  json["passed_over"] = planned_list(q, r.passed_over, best);
  json["alternatives"] = planned_list(q, r.others, best);
  json["precisions"] = precisions_json(r);
  json["fewer"] = planned_list(q, r.smaller, best);
  for (size_t i = 0; i < r.smaller.size(); ++i) {
    json["fewer"][i]["throughput_share"] = throughput_share(r, r.smaller[i]);
  }
  // These are ordered by price, as in the search.
  const auto list = [](const std::vector<plan::Candidate>& candidates) {
    Json all = Json::array();
    for (const plan::Candidate& c : candidates) all.push_back(candidate_json(c));
    return all;
  };
  json["fastest_by_price"] = found.best ? candidate_json(*found.best) : Json(nullptr);
  json["front"] = list(found.front);
  for (const PlannedLayout& p : r.smaller) {
    json["front"].push_back(candidate_json({p.proposal.layout, p.proposal.price}));
  }
  json["families"] = list(found.families);
  json["rejected"] = rejected_json(r);
  json["textbook"] = textbook_json(r);
  json["batch_efficiency"] = plan::batch_efficiency(q.job);
  json["meanings"] = meanings_json(r);
  json["search"] = search_json(found);
  return json;
}

Json comparison_json(const PlanQuestion& q, const PlannedLayout& a, const PlannedLayout& b) {
  return {{"ok", true}, {"a", planned_json(q, a)}, {"b", planned_json(q, b)}};
}

}  // namespace trireme::cli
