// SPDX-License-Identifier: Apache-2.0
// Answers of the planner as JSON.
#include <algorithm>

#include "base/json.h"
#include "cli/plan_report.h"
#include "plan/layout_text.h"

namespace trireme::cli {
namespace {

using base::Json;
using plan::Item;
using plan::Proposal;
using plan::Term;

Json layout_json(const plan::Layout& l) {
  return {{"text", plan::to_text(l)},
          {"tp", l.tp},
          {"sequence_parallel", l.sequence_parallel},
          {"cp", l.cp},
          {"pp", l.pp},
          {"schedule", std::string(plan::name_of(l.pipe))},
          {"chunks", l.chunks},
          {"dp", l.dp},
          {"zero", l.zero},
          {"ep", l.ep},
          {"micro_batch", l.micro_batch},
          {"recompute", std::string(spec::name_of(l.recompute))},
          {"precision", std::string(plan::name_of(l.precision))},
          {"placement", std::string(plan::name_of(l.placement))},
          {"gpus", l.processors()}};
}

Json price_json(const plan::Price& price) {
  Json terms = Json::object(), items = Json::object();
  for (size_t i = 0; i < price.seconds_of.size(); ++i) {
    terms[std::string(plan::name_of(static_cast<Term>(i)))] = price.seconds_of[i];
  }
  for (size_t i = 0; i < price.bytes_of.size(); ++i) {
    items[std::string(plan::name_of(static_cast<Item>(i)))] = price.bytes_of[i];
  }
  return {{"seconds", price.seconds},
          {"terms", terms},
          {"bytes", price.bytes},
          {"items", items},
          {"model_flops", price.model_flops},
          {"hardware_flops", price.hardware_flops}};
}

Json candidate_json(const plan::Candidate& c) {
  Json json = price_json(c.price);
  json["layout"] = layout_json(c.layout);
  return json;
}

Json proposal_json(const PlanQuestion& q, const Proposal& p) {
  const PlanRates rates = plan_rates(q, p);
  Json json = price_json(p.price);
  json["layout"] = layout_json(p.layout);
  json["tokens_per_second"] = rates.tokens;
  json["mfu"] = rates.mfu;
  json["hfu"] = rates.hfu;
  json["fits"] = fits(q, p);
  json["headroom_bytes"] = q.machine.processor.memory_bytes - p.confirmed.bytes;
  json["confirmed"] = {{"seconds", p.confirmed.seconds},
                       {"bytes", p.confirmed.bytes},
                       {"bubble_seconds", p.confirmed.bubble},
                       {"problem", p.confirmed.problem}};
  if (p.confirmed.has_plan) {
    const PlanPhases phases = plan_phases(q, p);
    json["phases"] = {{"start_bytes", phases.start},
                      {"load_bytes", phases.load},
                      {"step_bytes", phases.step},
                      {"save_host_bytes", phases.save_host}};
  }
  json["band"] = {{"time", p.band.time}, {"memory", p.band.memory}, {"warnings", p.band.warnings}};
  return json;
}

}  // namespace

Json answer_json(const PlanQuestion& q, const plan::Answer& answer, const PlanAsked& asked) {
  const plan::SearchResult& found = answer.search;
  Json json = {{"ok", answer.best.has_value()},
               {"model", q.job.model.name},
               {"machine", q.machine.name},
               {"stack", q.stack.name},
               {"grad_bytes", q.stack.grad_bytes},
               {"optimizer_bytes", q.stack.optimizer_bytes},
               {"gpus", q.processors},
               {"global_batch", q.job.global_batch},
               {"seq_len", q.job.seq_len},
               {"taken", q.taken},
               {"ignored", q.ignored},
               {"changes", answer.changes}};
  json["best"] = answer.best ? proposal_json(q, *answer.best) : Json(nullptr);
  json["asked"] = asked.layout ? proposal_json(q, *asked.layout) : Json(nullptr);
  json["fastest_by_price"] = found.best ? candidate_json(*found.best) : Json(nullptr);
  const auto list = [](const std::vector<plan::Candidate>& candidates) {
    Json all = Json::array();
    for (const plan::Candidate& c : candidates) all.push_back(candidate_json(c));
    return all;
  };
  json["better"] = list(asked.better);
  json["front"] = list(found.front);
  for (const plan::Smaller& s : answer.smaller) json["front"].push_back(candidate_json(s.best));
  json["alternatives"] = list(found.alternatives);
  json["families"] = list(found.families);
  json["rejected"] = Json::array();
  for (const plan::Rejected& r : found.rejected) {
    json["rejected"].push_back({{"tp", r.tp},
                                {"cp", r.cp},
                                {"pp", r.pp},
                                {"ep", r.ep},
                                {"reason", r.reason},
                                {"missing_bytes", r.missing_bytes},
                                {"nearest", r.nearest ? Json(plan::to_text(*r.nearest)) : Json()}});
  }
  json["textbook"] = {
      {"layout", answer.textbook.layout ? Json(plan::to_text(*answer.textbook.layout)) : Json()},
      {"seconds", answer.textbook_price ? Json(answer.textbook_price->seconds) : Json()}};
  json["batch_efficiency"] = plan::batch_efficiency(q.job);
  json["search"] = {
      {"layouts", found.layouts},
      {"priced", found.priced},
      {"pruned", found.pruned},
      {"too_large", found.too_large},
      {"seconds", found.seconds},
      {"layouts_per_second", static_cast<double>(found.priced) / std::max(found.seconds, 1e-9)}};
  return json;
}

Json comparison_json(const PlanQuestion& q, const Proposal& a, const Proposal& b) {
  return {{"ok", true}, {"a", proposal_json(q, a)}, {"b", proposal_json(q, b)}};
}

}  // namespace trireme::cli
