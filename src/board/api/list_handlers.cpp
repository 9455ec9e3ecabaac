// SPDX-License-Identifier: Apache-2.0
// The answers about all runs. They are computed from the heads and facts of the runs, so that a
// list of hundreds of runs does not wait for the points of any of them.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>

#include "board/api/handlers.h"
#include "board/board.h"
#include "board/run/flat_config.h"

namespace trireme::board {
namespace {

// Returns the sum of an object's numbers; null if it is none.
base::Json sum_of_values(const base::Json& object) {
  if (!object.is_object()) return nullptr;
  double sum = 0;
  for (const auto& [key, value] : object.items()) {
    if (value.is_number()) sum += value.get<double>();
  }
  return sum;
}

// Returns the words of job.tags.
base::Json tags_json(const base::Json& config) {
  base::Json tags = base::Json::array();
  const std::map<std::string, std::string> flat = flat_config(config);
  const auto found = flat.find("job.tags");
  if (found == flat.end()) return tags;
  constexpr std::string_view between = ", ";
  const std::string_view text = found->second;
  for (size_t at = text.find_first_not_of(between); at != std::string_view::npos;) {
    const size_t end = std::min(text.find(',', at), text.size());
    const size_t last = text.find_last_not_of(' ', end - 1);
    tags.push_back(text.substr(at, last + 1 - at));
    at = text.find_first_not_of(between, end);
  }
  return tags;
}

// Returns [[steps], [losses]] with the digits that a small picture needs.
base::Json curve_json(const RunHead& head) {
  base::Json steps = base::Json::array(), losses = base::Json::array();
  for (const RunHead::Point& point : head.curve()) {
    steps.push_back(point.step);
    losses.push_back(number_json(std::round(point.loss * 1e4) / 1e4));
  }
  return {std::move(steps), std::move(losses)};
}

base::Json entry_json(const RunView& view, size_t id, double now) {
  const RunView::Glance run(view);
  const RunFacts& facts = run.facts();
  base::Json entry = head_json(view, run, id);
  entry["is_analysed"] = run.is_analysed();
  entry["loss"] = optional_json(run.last_value(RunHead::loss_tag));
  entry["validation_loss"] = optional_json(run.last_value(RunHead::validation_tag));
  entry["tokens_per_second"] = optional_json(run.last_value("throughput(tps)"));
  entry["mfu_percent"] = optional_json(run.last_value("mfu(%)"));
  entry["dollars"] = dollars_json(facts);
  entry["curve"] = curve_json(run.head());
  entry["tags"] = tags_json(facts.config);
  const double last_time = run.last_time();
  entry["age_seconds"] = last_time > 0 ? base::Json(now - last_time) : base::Json(nullptr);
  entry["begin_time"] = facts.begin_time;
  entry["parameters"] = facts.prediction.is_object()
                            ? facts.prediction.value("parameters", base::Json())
                            : base::Json();
  return entry;
}

// Returns the colour of a run's lamp; "off" until it is known.
std::string lamp_of(const RunFacts& facts) {
  return facts.diagnosis.lamp.empty() ? "off" : facts.diagnosis.lamp;
}

}  // namespace

base::Json number_json(double value) {
  if (std::isfinite(value)) return value;
  if (std::isnan(value)) return "NaN";
  return value > 0 ? "Infinity" : "-Infinity";
}

base::Json optional_json(std::optional<double> value) {
  return value ? number_json(*value) : base::Json(nullptr);
}

// Returns what /api/runs and /api/run/ID have in common.
base::Json head_json(const RunView& view, const RunView::Glance& run, size_t id) {
  const RunFacts& facts = run.facts();
  return {{"id", id},
          {"key", view.key()},
          {"name", facts.name},
          {"group", facts.group},
          {"folder", view.shown_folder()},
          {"state", analysis::name_of(facts.state)},
          {"lamp", lamp_of(facts)},
          {"outcome", name_of(facts.diagnosis.outcome.kind)},
          {"sentence", facts.failure.empty() ? facts.diagnosis.sentence
                                             : "the folder cannot be analysed: " + facts.failure},
          {"step", run.last_step()},
          {"steps", facts.total_steps},
          {"tokens", optional_json(run.last_value("tokens"))},
          {"revision", run.revision()}};
}

// Returns the dollars of all attempts; null without a price.
base::Json dollars_json(const RunFacts& facts) {
  const base::Json ledger = analysis::to_json(facts.ledger);
  return ledger.contains("dollars") ? sum_of_values(ledger["dollars"]) : base::Json(nullptr);
}

Response runs_response(const Board& board, bool has_planner, const Request& request) {
  const std::vector<RunView*> runs = board.runs();
  std::vector<size_t> ids;
  if (const auto asked = request.parameter("ids")) {
    for (size_t at = 0; at < asked->size();) {
      const size_t end = std::min(asked->find(',', at), asked->size());
      size_t id = 0;
      const auto [stop, error] = std::from_chars(asked->data() + at, asked->data() + end, id);
      if (error != std::errc() || stop != asked->data() + end || id >= runs.size()) {
        return error_response(400,
                              fmt::format("ids: must be numbers of runs from 0 to {}, as in 0,3",
                                          std::ssize(runs) - 1));
      }
      ids.push_back(id);
      at = end + 1;
    }
    if (ids.size() > runs.size()) return error_response(400, "ids: has more runs than there are");
  } else {
    for (size_t id = 0; id < runs.size(); ++id) ids.push_back(id);
  }
  base::Json list = base::Json::array();
  for (const size_t id : ids) list.push_back(entry_json(*runs[id], id, board.now()));
  return json_response({{"runs", std::move(list)}, {"count", runs.size()}, {"plan", has_planner}});
}

base::Json configs_json(const Board& board) {
  const std::vector<RunView*> runs = board.runs();
  std::vector<std::map<std::string, std::string>> configs;
  std::map<std::string, std::set<std::string>> values;
  for (const RunView* run : runs) {
    configs.push_back(flat_config(RunView::Glance(*run).facts().config));
    for (const auto& [key, text] : configs.back()) values[key].insert(text);
  }
  base::Json keys = base::Json::object(), same = base::Json::object();
  for (const auto& [key, texts] : values) {
    const auto has_key = [&, name = &key](const auto& config) { return config.contains(*name); };
    const bool is_everywhere = std::ranges::all_of(configs, has_key);
    if (texts.size() < 2 && is_everywhere) {
      same[key] = *texts.begin();
      continue;
    }
    base::Json column = base::Json::array();
    for (const auto& config : configs) {
      const auto found = config.find(key);
      column.push_back(found == config.end() ? base::Json(nullptr) : base::Json(found->second));
    }
    keys[key] = std::move(column);
  }
  return {{"keys", std::move(keys)}, {"same", std::move(same)}};
}

std::string update_event(const Board& board, std::vector<std::string>& sent) {
  std::string list;
  int64_t sum = 0;
  const std::vector<RunView*> runs = board.runs();
  sent.resize(runs.size());
  for (size_t id = 0; id < runs.size(); ++id) {
    const RunView::Glance run(*runs[id]);
    sum += run.revision();
    std::string entry = text_of({{"id", id},
                                 {"is_analysed", run.is_analysed()},
                                 {"lamp", lamp_of(run.facts())},
                                 {"revision", run.revision()},
                                 {"state", analysis::name_of(run.facts().state)},
                                 {"step", run.last_step()}});
    if (entry == sent[id]) continue;
    list += list.empty() ? entry : "," + entry;
    sent[id] = std::move(entry);
  }
  return fmt::format("id: {}\nevent: update\ndata: {{\"runs\":[{}]}}\n\n", sum, list);
}

}  // namespace trireme::board
