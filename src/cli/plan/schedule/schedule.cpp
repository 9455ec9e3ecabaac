// SPDX-License-Identifier: Apache-2.0
// trireme schedule: draws, times and checks pipeline schedules, also custom ones.
#include <algorithm>
#include <iterator>
#include <optional>

#include "base/error.h"
#include "cli/plan/schedule/schedule_report.h"
#include "cli/verbs.h"
#include "config/document.h"
#include "schedule/catalogue.h"
#include "schedule/generators/lanes.h"
#include "sim/picture.h"

namespace trireme::cli {
namespace {

using schedule::Schedule;

struct Units {
  sim::StageSeconds seconds;
  sim::StageBytes kept{.f_to_w = 1};
  double cap = 0;  // 0: none
};

Units units_of(const Args& args) {
  Units units;
  const std::vector<double> costs = number_list("--costs", args.text("--costs"), 3, 4);
  units.seconds = {.f = costs[0], .b = costs[1], .w = costs[2], .bw = costs[1] + costs[2]};
  units.seconds.fb = costs.size() > 3 ? costs[3] : costs[0] + units.seconds.bw;
  if (args.has("--mem")) {
    const std::vector<double> mem = number_list("--mem", args.text("--mem"), 1, 4);
    if (mem.size() != 1 && mem.size() != 4) {
      throw base::ConfigError(
          fmt::format("--mem {}: expected CAP, or CAP,F_TO_B,F_TO_W,B_TO_W", args.text("--mem")));
    }
    units.cap = mem[0];
    if (mem.size() == 4) units.kept = {.f_to_b = mem[1], .f_to_w = mem[2], .b_to_w = mem[3]};
  }
  return units;
}

Schedule yes(const base::Result<Schedule>& result) {
  if (!result) throw base::ConfigError(result.reason());
  return result.value();
}

// Generates a schedule under a memory cap, on a looping lane with the given number of chunks.
Schedule capped_of(const Args& args, const Units& units) {
  const int ranks = args.small_integer("--stages");
  const int chunks = args.has("--chunks") ? args.small_integer("--chunks") : 1;
  const int microbatches = args.small_integer("--microbatches");
  if (ranks < 1 || chunks < 1 || microbatches < 1 || int64_t{ranks} * chunks > 4096 ||
      int64_t{ranks} * chunks * microbatches > 1'000'000) {
    throw base::ConfigError(
        fmt::format("{} ranks, {} chunks, {} micro-batches: each must be at least 1, with at most "
                    "4096 stages and 1000000 forwards",
                    ranks, chunks, microbatches));
  }
  const auto stages = static_cast<size_t>(ranks) * static_cast<size_t>(chunks);
  return yes(schedule::capped(
      {.microbatches = microbatches,
       .lanes = {schedule::looping_lane(ranks, chunks)},
       .f = std::vector(stages, units.seconds.f),
       .b = std::vector(stages, units.seconds.b),
       .w = std::vector(stages, units.seconds.w),
       .kept = std::vector(stages, units.kept.f_to_b + units.kept.f_to_w + units.kept.b_to_w),
       .message_seconds = args.number("--latency"),
       .cap = units.cap}));
}

Schedule compute_of(const Args& args, const Units& units) {
  if (!args.has("name") || !args.has("--stages") || !args.has("--microbatches")) {
    std::string names;
    for (const schedule::Named& named : schedule::catalogue()) {
      names += fmt::format("  {:<12}{}\n", named.name, named.what);
    }
    throw base::ConfigError(fmt::format(
        "give a NAME, --stages and --microbatches, or --check FILE. Names:\n{}  {:<12}{}", names,
        "capped", "generated under a memory cap, --mem CAP"));
  }
  if (args.text("name") == "capped") return capped_of(args, units);
  return yes(schedule::generate(
      args.text("name"), {.ranks = args.small_integer("--stages"),
                          .microbatches = args.small_integer("--microbatches"),
                          .chunks = args.has("--chunks") ? args.small_integer("--chunks") : 0}));
}

// Returns the line of the text that an error of from_text() names, with a mark below the column.
std::string marked_line(const std::string& text, const std::string& reason) {
  size_t line = 0, column = 0;
  if (std::sscanf(reason.c_str(), "line %zu, column %zu", &line, &column) != 2) return {};
  size_t begin = 0;
  for (size_t i = 1; i < line && begin != std::string::npos; ++i) {
    begin = text.find('\n', begin);
    if (begin != std::string::npos) ++begin;
  }
  if (begin == std::string::npos) return {};
  const std::string whole = text.substr(begin, text.find('\n', begin) - begin);
  const size_t first = column > grid_columns / 2 ? column - grid_columns / 2 : 0;
  return fmt::format("\n{}\n{}^", whole.substr(std::min(first, whole.size()), grid_columns),
                     std::string(column - 1 - first, ' '));
}

// Reads a schedule. If it contains no messages they are added; otherwise it must contain all.
Schedule schedule_of_file(const std::string& path, int send_buffers, schedule::SendDxWhen when) {
  const std::string text = config::read_text(path);
  const base::Result<Schedule> read = schedule::from_text(text);
  if (!read) {
    throw base::ConfigError(
        fmt::format("{}: {}{}", path, read.reason(), marked_line(text, read.reason())));
  }
  Schedule schedule = read.value();
  const bool is_compute_alone = !schedule::has_messages(schedule);
  if (is_compute_alone) schedule = schedule::add_p2p(schedule, when);
  if (const std::optional<schedule::Fault> fault = schedule::find_fault(schedule, send_buffers)) {
    throw base::ConfigError(
        fmt::format("{}{}: {}\n{}", path, is_compute_alone ? ", with its messages added" : "",
                    fault->reason, sim::fault_grid(schedule, *fault, grid_columns)));
  }
  return schedule;
}

// Throws ConfigError if a rank exceeds the memory cap.
void check_cap(const std::string& name, const sim::Result& result, double cap) {
  if (cap <= 0) return;
  for (size_t rank = 0; rank < result.ranks.size(); ++rank) {
    if (result.ranks[rank].peak_bytes <= cap * (1 + 1e-9)) continue;
    const double needed =
        std::ranges::max(result.ranks, {}, &sim::RankResult::peak_bytes).peak_bytes;
    throw base::ConfigError(fmt::format(
        "{} needs {:g} on rank {}, but --mem allows {:g}; give --mem {:g}, or the schedule "
        "`capped`, which stays within {:g}",
        name, result.ranks[rank].peak_bytes, rank, cap, needed, cap));
  }
}

int run_schedule(const Args& args) {
  const Units units = units_of(args);
  const int buffers = args.small_integer("--buffers");
  if (buffers < 0) throw base::ConfigError(fmt::format("--buffers {}: at least 0", buffers));
  const auto when = args.text("--send-dx") == "after-w" ? schedule::SendDxWhen::after_w
                                                        : schedule::SendDxWhen::before_w;
  Schedule schedule;
  std::string name;
  if (args.has("--check")) {
    name = args.text("--check");
    schedule = schedule_of_file(name, buffers, when);
  } else {
    schedule = compute_of(args, units);
    name = args.text("name");
    if (args.flag("--split")) schedule = schedule::split_backward(std::move(schedule));
    schedule =
        schedule::add_tied(schedule::add_reduce(schedule::add_p2p(std::move(schedule), when)));
    if (const auto fault = schedule::find_fault(schedule, buffers)) {
      throw base::ConfigError(
          fmt::format("{}\n{}", fault->reason, sim::fault_grid(schedule, *fault, grid_columns)));
    }
  }
  if (args.flag("--text") && !args.wants_json()) {
    fmt::print("{}", schedule::to_text(schedule));
    return 0;
  }
  const sim::Links links{{{.latency = args.number("--latency")}}, {}};
  const sim::Result result =
      sim::simulate(schedule, sim::uniform_costs(schedule.stages(), units.seconds, units.kept, 0),
                    links, {.timeline = true});
  check_cap(name, result, units.cap);
  const std::string title = fmt::format("{}: {} ranks, {} stages, {} micro-batches", name,
                                        schedule.ranks, schedule.stages(), schedule.microbatches);
  report({title, schedule, result}, args);
  return 0;
}

}  // namespace

Verb schedule_verb() {
  std::vector<Option> options = {
      {.name = "name", .help = "Schedule: " + schedule::listed_names("", true) + " or capped"},
      {.name = "--stages", .kind = Kind::integer, .help = "Number of pipeline ranks"},
      {.name = "--microbatches",
       .kind = Kind::integer,
       .help = "Number of micro-batches in a step"},
      {.name = "--chunks", .kind = Kind::integer, .help = "Stages per rank, for interleaved"},
      {.name = "--costs",
       .fallback = "1,1,1",
       .help = "Times of F, B and W of a stage, and of F overlapped with a backward, in any unit: "
               "F,B,W "
               "or F,B,W,FB"},
      {.name = "--mem",
       .help =
           "Memory cap of a rank (0: none), and memory of a micro-batch on a stage that lives from "
           "F "
           "to B, from F to W and from B to W: CAP or CAP,F_TO_B,F_TO_W,B_TO_W; default: 0,0,1,0"},
      {.name = "--latency",
       .kind = Kind::number,
       .fallback = "0",
       .help = "Latency of a message, in the unit of --costs"},
      {.name = "--send-dx",
       .fallback = "before-w",
       .help = "When an input gradient is sent: before or after the weight gradient",
       .choices = {"before-w", "after-w"}},
      {.name = "--split", .kind = Kind::flag, .help = "Split merged backwards into B and W"},
      {.name = "--buffers",
       .kind = Kind::integer,
       .fallback = "1",
       .help = "Send buffers per channel, for the check of deadlocks; 0: none"},
      {.name = "--check", .help = "File with a schedule to check and draw, instead of NAME"},
      {.name = "--text",
       .kind = Kind::flag,
       .help = "Print the schedule as text, messages included"}};
  std::vector<Option> common = report_options();
  std::ranges::move(common, std::back_inserter(options));
  return {.name = "schedule",
          .summary = "Draw, time and check pipeline schedules",
          .details =
              "Time runs to the right, with one line per rank. Idle time is relative to the "
              "longest time\n"
              "that a rank takes from its first action to its last, as in the papers.\n"
              "A file for --check has one line per rank: 0F0 0F1 0BW0 (stage, operation, "
              "micro-batch).\n"
              "For a faulty schedule the error names rank, position and reason.\n"
              "docs/schedules.md describes the schedules and the text form.\n\nExamples:\n"
              "  trireme schedule 1f1b --stages 4 --microbatches 8\n"
              "  trireme schedule interleaved --stages 4 --microbatches 10 --chunks 2 --svg i.svg\n"
              "  trireme schedule zb-h1 --stages 8 --microbatches 24 --costs 1,1.2,0.8 --json\n"
              "  trireme schedule capped --stages 4 --microbatches 8 --mem 3\n"
              "  trireme schedule --check mine.txt",
          .options = std::move(options),
          .run = run_schedule};
}

}  // namespace trireme::cli
