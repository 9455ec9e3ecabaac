// SPDX-License-Identifier: Apache-2.0
#include "obs/files/event.h"

#include <array>

namespace trireme::obs {
namespace {

constexpr std::array<std::string_view, static_cast<size_t>(EventKind::count)> kind_names = {
    "start", "resume",     "validation", "checkpoint", "save_failed", "exported",  "export_failed",
    "skip",  "loss_scale", "spike",      "rollback",   "replan",      "straggler", "verdict",
    "alert", "preempt",    "hardware",   "numerics",   "notice",      "recovered", "end"};
constexpr std::array<std::string_view, 3> severity_names = {"info", "warning", "error"};

template <typename T>
T value_or(const base::Json& json, const char* key, T otherwise) {
  const auto found = json.find(key);
  if (found == json.end()) return otherwise;
  if constexpr (std::is_same_v<T, std::string>) {
    return found->is_string() ? found->get<std::string>() : otherwise;
  } else {
    return found->is_number() ? found->get<T>() : otherwise;
  }
}

}  // namespace

std::string_view name_of(EventKind kind) { return kind_names.at(static_cast<size_t>(kind)); }

std::optional<EventKind> event_kind_from(std::string_view name) {
  for (size_t i = 0; i < kind_names.size(); ++i) {
    if (kind_names[i] == name) return static_cast<EventKind>(i);
  }
  return {};
}

std::string_view name_of(Severity severity) {
  return severity_names.at(static_cast<size_t>(severity));
}

base::Json to_json(const Event& event) {
  base::Json json = {{"time", event.time}};
  if (event.step >= 0) json["step"] = event.step;
  json["attempt"] = event.attempt;
  json["epoch"] = event.epoch;
  json["kind"] = name_of(event.kind);
  json["severity"] = name_of(event.severity);
  if (!event.node.empty()) json["node"] = event.node;
  if (event.rank >= 0) json["rank"] = event.rank;
  if (!event.device.empty()) json["device"] = event.device;
  json["text"] = event.text;
  if (!event.data.empty()) json["data"] = event.data;
  if (!event.evidence.empty()) json["evidence"] = event.evidence;
  return json;
}

std::optional<Event> event_from(const base::Json& json) {
  if (!json.is_object()) return {};
  const std::optional<EventKind> kind = event_kind_from(value_or<std::string>(json, "kind", ""));
  if (!kind || !json.contains("time") || !json["time"].is_number()) return {};
  Event event{.time = value_or<double>(json, "time", 0),
              .step = value_or<int64_t>(json, "step", -1),
              .attempt = value_or<int64_t>(json, "attempt", 0),
              .epoch = value_or<int64_t>(json, "epoch", 0),
              .kind = *kind,
              .node = value_or<std::string>(json, "node", ""),
              .rank = value_or<int>(json, "rank", -1),
              .device = value_or<std::string>(json, "device", ""),
              .text = value_or<std::string>(json, "text", "")};
  const std::string severity = value_or<std::string>(json, "severity", "info");
  for (size_t i = 0; i < severity_names.size(); ++i) {
    if (severity_names[i] == severity) event.severity = static_cast<Severity>(i);
  }
  if (const auto data = json.find("data"); data != json.end() && data->is_object()) {
    event.data = *data;
  }
  if (const auto evidence = json.find("evidence"); evidence != json.end() && evidence->is_array()) {
    for (const base::Json& path : *evidence) {
      if (path.is_string()) event.evidence.push_back(path.get<std::string>());
    }
  }
  return event;
}

}  // namespace trireme::obs
