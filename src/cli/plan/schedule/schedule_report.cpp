// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/schedule/schedule_report.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>

#include "base/error.h"
#include "base/text/json.h"
#include "obs/terminal/number_text.h"
#include "sim/picture.h"

namespace trireme::cli {
namespace {

base::Json to_json(const Played& played) {
  const auto& [title, schedule, result, is_seconds] = played;
  base::Json out = {{"ok", true},
                    {"title", title},
                    {"ranks", schedule.ranks},
                    {"stages", schedule.stages()},
                    {"microbatches", schedule.microbatches},
                    {"step_time", result.step_time},
                    {"makespan", result.makespan},
                    {"bubble_fraction", result.bubble_fraction()}};
  for (const char* key : {"peak_memory", "busy", "bubble", "exposed_communication"}) {
    out[key] = base::Json::array();
  }
  base::Json actions = base::Json::array();
  for (size_t rank = 0; rank < result.ranks.size(); ++rank) {
    out["peak_memory"].push_back(result.ranks[rank].peak_bytes);
    out["busy"].push_back(result.ranks[rank].busy);
    out["bubble"].push_back(result.bubble_of(rank));
    out["exposed_communication"].push_back(result.ranks[rank].exposed);
    for (size_t at = 0; at < schedule.program[rank].size(); ++at) {
      const schedule::Action& action = schedule.program[rank][at];
      actions.push_back({{"rank", rank},
                         {"action", schedule::to_text(action)},
                         {"stage", action.stage},
                         {"microbatch", action.microbatch},
                         {"begin", result.timeline[rank][at].begin},
                         {"end", result.timeline[rank][at].end}});
    }
  }
  out["actions"] = std::move(actions);
  return out;
}

void print(const Played& played) {
  const auto& [title, schedule, result, is_seconds] = played;
  fmt::print("{}\n{}{}", title, sim::grid(schedule, result, grid_columns), sim::legend(schedule));
  double exposed = 0, peak = 0;
  size_t peak_rank = 0;
  for (size_t rank = 0; rank < result.ranks.size(); ++rank) {
    exposed = std::max(exposed, result.ranks[rank].exposed);
    if (result.ranks[rank].peak_bytes <= peak) continue;
    peak = result.ranks[rank].peak_bytes;
    peak_rank = rank;
  }
  const char* unit = is_seconds ? " s" : "";
  fmt::print("step {:.5g}{}, idle {:.1f} %", result.step_time, unit,
             100 * result.bubble_fraction());
  if (result.makespan > result.step_time) {
    fmt::print(", {:.5g}{} from the start of the first rank to the end of the last",
               result.makespan, unit);
  }
  if (exposed > 0) fmt::print(", up to {:.3g}{} waiting for messages", exposed, unit);
  fmt::print("\npeak memory {} (rank {})\n",
             is_seconds ? obs::bytes_text(std::llround(peak)) : fmt::format("{:.5g}", peak),
             peak_rank);
}

void write_svg(const Played& played, const std::string& path) {
  std::ofstream file(path, std::ios::binary);
  file << sim::svg({{played.title, &played.schedule, &played.result, played.is_seconds}});
  file.close();
  if (!file) throw base::IoError(fmt::format("{}: cannot be written", path));
}

}  // namespace

std::vector<double> number_list(const std::string& option, const std::string& text,
                                size_t min_count, size_t max_count) {
  std::vector<double> numbers;
  const auto refuse = [&] {
    const std::string count = min_count == max_count
                                  ? fmt::format("{}", min_count)
                                  : fmt::format("{} to {}", min_count, max_count);
    throw base::ConfigError(fmt::format(
        "{} {}: expected {} numbers of at least 0, separated by commas", option, text, count));
  };
  const char* at = text.data();
  const char* const end = text.data() + text.size();
  while (true) {
    double number = 0;
    const auto [next, error] = std::from_chars(at, end, number);
    if (error != std::errc{} || !std::isfinite(number) || number < 0) refuse();
    numbers.push_back(number);
    at = next;
    if (at == end) break;
    if (*at != ',') refuse();
    ++at;
  }
  if (numbers.size() < min_count || numbers.size() > max_count) refuse();
  return numbers;
}

std::vector<Option> report_options() {
  return {{.name = "--svg", .help = "SVG file to write the picture to"}};
}

void report(const Played& played, const Args& args) {
  if (args.has("--svg")) write_svg(played, args.text("--svg"));
  if (args.wants_json()) {
    fmt::print("{}\n", to_json(played).dump());
    return;
  }
  print(played);
  if (args.has("--svg")) fmt::print("picture in {}\n", args.text("--svg"));
}

}  // namespace trireme::cli
