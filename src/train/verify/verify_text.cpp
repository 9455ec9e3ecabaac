// SPDX-License-Identifier: Apache-2.0
// The report of verify(), as a table and as JSON.
#include <fmt/ranges.h>

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "base/text/json.h"
#include "obs/terminal/number_text.h"
#include "obs/terminal/table.h"
#include "train/verify/verify.h"
#include "train/verify/verify_run.h"

namespace trireme::train {
namespace {

using base::Json;

// "cp 4 (ulysses_gather, zigzag, ulysses 2)"; with its ZeRO stage if cp alone shards state.
std::string context_text(const spec::Layout& l) {
  std::string text = fmt::format("cp {}", l.cp);
  if (l.dp_shard == 1 && l.zero_stage > 0) text += fmt::format(" ZeRO-{}", l.zero_stage);
  text += fmt::format(" ({}, {}", spec::name_of(l.context_kind), spec::name_of(l.context_slices));
  if (l.ulysses > 1 && l.ulysses < l.cp) text += fmt::format(", ulysses {}", l.ulysses);
  return text + ")";
}

// "dp 2 x 4 ZeRO-3, cp 2 (gather, zigzag), tp 2, pp 2 (1f1b, 4 stages), logical_dp 8, reduce once"
std::string layout_text(const spec::Layout& l) {
  std::vector<std::string> parts;
  if (l.dp_shard > 1) {
    parts.push_back(
        fmt::format("dp {}{} ZeRO-{}",
                    l.dp_replicate > 1 ? fmt::format("{} x ", l.dp_replicate) : std::string(),
                    l.dp_shard, l.zero_stage));
  } else if (l.dp_replicate > 1) {
    parts.push_back(fmt::format("dp {}", l.dp_replicate));
  }
  if (l.cp > 1) parts.push_back(context_text(l));
  if (l.keeps_params()) parts.push_back("parameters not resharded");
  if (l.tp > 1) parts.push_back(fmt::format("tp {}", l.tp));
  if (l.sequence_parallel) parts.push_back("sequence parallel");
  if (l.ep > 1) parts.push_back(fmt::format("ep {}", l.ep));
  if (l.etp > 1) parts.push_back(fmt::format("etp {}", l.etp));
  if (l.pp > 1) {
    parts.push_back(fmt::format(
        "pp {} ({}, {} stages)", l.pp,
        l.custom_schedule ? "a custom schedule" : schedule::name_of(l.schedule), l.pp * l.chunks));
  }
  if (parts.empty()) parts.push_back("one rank");
  parts.push_back(fmt::format("logical_dp {}", l.logical_dp));
  parts.push_back(fmt::format("reduce {}", spec::name_of(l.reduce)));
  return fmt::format("{}", fmt::join(parts, ", "));
}

// ", 8 experts (2 chosen) of 16 in 2 blocks, shared experts of 24"
std::string experts_text(const spec::ModelDims& d) {
  if (!d.moe) return "";
  const spec::RouterSpec& r = d.moe->router;
  std::string text = fmt::format(", {} experts ({} chosen) of {} in {} blocks", r.experts, r.chosen,
                                 d.moe->ffn, spec::expert_blocks(d));
  if (r.groups > 1) text += fmt::format(", {} of {} groups", r.chosen_groups, r.groups);
  if (d.moe->shared_ffn > 0) text += fmt::format(", shared experts of {}", d.moe->shared_ffn);
  return text;
}

std::string model_text(const spec::ModelDims& d) {
  return fmt::format("{}: {} blocks, hidden {}, {} heads ({} kv) of {}, ffn {}{}, vocabulary {}{}",
                     d.name, d.layers, d.hidden, d.heads, d.kv_heads == 0 ? d.heads : d.kv_heads,
                     d.head_dim, d.ffn, experts_text(d), d.vocab, d.tied_head ? ", tied head" : "");
}

// JSON has no infinity.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json("not finite"); }

Json to_json(const spec::TrafficTable& table) {
  Json json = Json::object();
  int64_t total = 0;
  for (const TrafficKind& kind : step_traffic_kinds()) {
    json[kind.name] = table.*kind.bytes;
    total += table.*kind.bytes;
  }
  json["total"] = total;
  return json;
}

Json to_json(const spec::MemoryTable& m) {
  return {{"params", m.params},   {"grads", m.grads}, {"optim", m.optim},     {"stash", m.stash()},
          {"scratch", m.scratch}, {"comm", m.comm},   {"staging", m.staging}, {"total", m.total()}};
}

}  // namespace

std::string to_text(const VerifyReport& report) {
  const std::array<obs::Column, 5> columns = {{{"", obs::Align::left},
                                               {"check", obs::Align::left},
                                               {"error", obs::Align::right},
                                               {"bound", obs::Align::right},
                                               {"found", obs::Align::left}}};
  std::vector<std::vector<std::string>> rows;
  for (const VerifyCheck& check : report.checks) {
    const bool has_bound = check.bound > 0;
    rows.push_back({check.ok ? "OK" : "FAILED", check.recipe + " " + check.name,
                    has_bound ? fmt::format("{:.2g}", check.error) : "",
                    has_bound ? fmt::format("{:.0e}", check.bound) : "", check.detail});
  }
  std::string text = fmt::format("{}\n{}\n", layout_text(report.layout), model_text(report.dims));
  for (const std::string& note : report.notes) text += note + "\n";
  text += "\n" + obs::table_text(columns, rows) + "\n";
  if (!report.worst_parameter.empty()) {
    text += fmt::format("worst gradient: '{}', error {:.3g}\n", report.worst_parameter,
                        report.worst_error);
  }
  if (const VerifyCheck* failed = report.first_failed(); failed != nullptr) {
    text += fmt::format("look first at {} {}: {}\n", failed->recipe, failed->name, failed->hint);
  }
  text += report.ok() ? "all checks passed\n" : "the layout does NOT train like one rank\n";
  return text;
}

Json to_json(const VerifyReport& report) {
  Json checks = Json::array(), ranks = Json::array();
  for (const VerifyCheck& check : report.checks) {
    Json json = {
        {"name", check.name}, {"recipe", check.recipe}, {"ok", check.ok}, {"detail", check.detail}};
    if (check.bound > 0) {
      json["error"] = number(check.error);
      json["bound"] = check.bound;
    }
    if (!check.hint.empty()) json["hint"] = check.hint;
    checks.push_back(std::move(json));
  }
  for (const VerifyRank& rank : report.by_rank) {
    Json coord = Json::object();
    for (const spec::Axis axis : spec::dense_axes) {
      coord[std::string(spec::name_of(axis))] = rank.coord[axis];
    }
    if (report.dims.moe) {
      for (const spec::Axis axis : spec::expert_axes) {
        coord[std::string(spec::name_of(axis))] = rank.coord[axis];
      }
    }
    ranks.push_back(
        {{"rank", rank.rank},
         {"coord", coord},
         {"bytes",
          {{"predicted", to_json(rank.predicted_bytes)}, {"counted", to_json(rank.counted_bytes)}}},
         {"memory",
          {{"predicted", to_json(rank.predicted_memory)},
           {"measured", to_json(rank.measured_memory)}}}});
  }
  return {{"ok", report.ok()},
          {"layout", layout_text(report.layout)},
          {"model", model_text(report.dims)},
          {"notes", report.notes},
          {"steps", verify_steps},
          {"checks", checks},
          {"worst_parameter", report.worst_parameter},
          {"worst_error", number(report.worst_error)},
          {"ranks", ranks}};
}

}  // namespace trireme::train
