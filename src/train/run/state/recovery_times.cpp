// SPDX-License-Identifier: Apache-2.0
#include "train/run/state/recovery_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "base/text/json_depth.h"
#include "obs/files/event_log.h"

namespace trireme::train {
namespace {

// The record of a run that loses ranks again and again is long, and the loss is near its end.
constexpr std::streamoff tail_bytes = 64 << 10;

std::optional<Loss> loss_from(const obs::Event& event, int64_t epoch) {
  if (event.kind != obs::EventKind::verdict) return {};
  try {
    if (event.data.value("job_epoch", int64_t{-1}) != epoch) return {};
    return Loss{.lost_at = event.data.at("lost_at").get<double>(),
                .verdict_at = event.time,
                .ranks = event.data.at("ranks").get<std::vector<int>>()};
  } catch (const base::Json::exception&) {  // of a later build
    return {};
  }
}

}  // namespace

std::optional<Loss> loss_of_epoch(const std::filesystem::path& run_folder, int64_t epoch) {
  std::ifstream in(run_folder / obs::EventLog::file_name, std::ios::binary | std::ios::ate);
  const std::streamoff bytes = in.tellg();
  if (bytes < 0) return {};
  in.seekg(std::max<std::streamoff>(0, bytes - tail_bytes));
  std::optional<Loss> found;
  for (std::string line; std::getline(in, line);) {
    const base::Json json = base::parse_shallow_json(line);
    if (!json.is_object()) continue;  // cut by the tail
    const std::optional<obs::Event> event = obs::event_from(json);
    if (!event) continue;
    if (const std::optional<Loss> loss = loss_from(*event, epoch)) found = loss;
  }
  return found;
}

EpochEntry epoch_entry(std::span<const EpochMarks> marks, double connected_at, double restored_at) {
  EpochEntry entry{.connected_at = connected_at, .restored_at = restored_at};
  for (const EpochMarks& one : marks) {
    entry.left_at = std::max(entry.left_at, one.left_at);
    if (one.left_at == 0) entry.up_at = std::max(entry.up_at, one.up_at);
    entry.reached = std::max(entry.reached, one.step);
  }
  return entry;
}

RecoveryTimes recovery_times(const Loss& loss, const EpochEntry& entry, double finished_at) {
  RecoveryTimes times;
  double at = loss.lost_at;
  const auto until = [&at](double end) {
    const double begin = std::exchange(at, std::max(at, end));
    return at - begin;
  };
  times.detect = until(loss.verdict_at);
  times.start = std::max(0.0, entry.up_at - at);
  times.abort = until(entry.left_at);
  times.reform = until(entry.connected_at);
  times.restore = until(entry.restored_at);
  times.repeat = until(finished_at);
  times.all = at - loss.lost_at;
  return times;
}

std::vector<std::pair<const char*, double>> parts_of(const RecoveryTimes& times) {
  return {{"detect", times.detect},
          {"abort", times.abort},
          {"reform", times.reform},
          {"restore", times.restore},
          {"repeat", times.repeat}};
}

std::string to_text(const RecoveryTimes& times) {
  std::string text = fmt::format("{:.2f} s", times.all);
  char mark = ':';
  for (const auto& [name, seconds] : parts_of(times)) {
    text += fmt::format("{} {} {:.2f}", std::exchange(mark, ','), name, seconds);
  }
  return text;
}

base::Json to_json(const RecoveryTimes& times) {
  base::Json json = {{"seconds", times.all}, {"start", times.start}};
  for (const auto& [name, seconds] : parts_of(times)) json[name] = seconds;
  return json;
}

}  // namespace trireme::train
