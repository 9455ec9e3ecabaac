// SPDX-License-Identifier: Apache-2.0
#include "agent/rank_findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "agent/exit_codes.h"
#include "agent/processes/starved.h"
#include "base/text/json.h"
#include "comm/failure/verdict.h"
#include "obs/files/signal_events.h"

namespace trireme::agent {
namespace {

// A silence counts this much while the rank lacks a processor.
constexpr double starved_share = 0.25;

// ": a.bin: byte 0 of 100 cannot be read any more", " at step 9, last op gemm 2 x 3 x 4".
std::string cause_text(const obs::Event& event) {
  if (event.data.contains("exit_code")) return ": " + event.text;
  const auto op = event.data.find("op");
  return fmt::format(" at step {}, last op {}", std::max<int64_t>(event.step, 0),
                     op != event.data.end() && op->is_string() ? op->get<std::string>() : "none");
}

}  // namespace

bool is_broken(const RankProcesses::State& state) {
  return state.ending && !state.ending->is_good() &&
         !(state.ending->signal == 0 && state.ending->exit_code == exit_stopped);
}

bool RankFindings::has_bad_ending() const { return std::ranges::any_of(crew_.ranks(), is_broken); }

bool RankFindings::is_any_rank_killed() const {
  return std::ranges::any_of(crew_.ranks(), [](const RankProcesses::State& state) {
    return is_broken(state) && state.ending->signal != 0;
  });
}

RankFindings::Reports RankFindings::reports(comm::Store& epoch_store) {
  const int world = options_.world();
  Reports reports = comm::read_reports(epoch_store, world);
  for (const RankProcesses::State& state : crew_.ranks()) {
    comm::RankReport& report = reports[static_cast<size_t>(state.rank)];
    if (state.ending && !is_broken(state)) report.ended.clear();
    const bool counts = !state.ending && report.position && report.silent_s > silent_limit_;
    const bool is_starved = counts && has_ready_thread(crew_.process_of(state.rank));
    if (is_starved) report.silent_s *= starved_share;
    if (!is_broken(state)) continue;
    report.ended = state.ending->text() + recorded_cause(state.rank);
    report.departure = state.departure - world;  // observed by this process: before reported ones
  }
  return reports;
}

// Returns what the handler of fatal signals recorded of a rank that ended, as the rest of a
// sentence; empty if it recorded nothing.
const std::string& RankFindings::recorded_cause(int rank) {
  const auto [found, is_new] = causes_.try_emplace(rank);
  if (!is_new || options_.run_folder.empty()) return found->second;
  if (const auto event = obs::signal_event_of(options_.run_folder, rank, started_)) {
    found->second = cause_text(*event);
  }
  return found->second;
}

double RankFindings::listen_seconds() const {
  constexpr double min_seconds = 0.1, seconds_a_rank = 5e-4;  // at 2,000 ranks once a second
  return std::max({min_seconds, options_.detect_s / 20, options_.world() * seconds_a_rank});
}

std::optional<comm::Verdict> RankFindings::stall_of(const Reports& reports) const {
  const bool is_silent = std::ranges::any_of(reports, [this](const comm::RankReport& report) {
    return report.ended.empty() && report.position && !report.position->has_left &&
           report.silent_s > silent_limit_;
  });
  if (is_silent) return verdict_of(reports);
  return has_died(reports) ? std::nullopt : comm::hang_of(reports);
}

comm::Verdict RankFindings::verdict_of(const Reports& reports) const {
  return comm::verdict_of(reports, {.silent_limit_s = std::min(
                                        comm::silent_limit(options_.deadline_s), silent_limit_)});
}

bool has_died(const RankFindings::Reports& reports) {
  return std::ranges::any_of(reports,
                             [](const comm::RankReport& report) { return !report.ended.empty(); });
}

bool have_all_reported(const RankFindings::Reports& reports, double seconds) {
  return std::ranges::all_of(reports, [seconds](const comm::RankReport& report) {
    return !report.ended.empty() ||
           (report.position && (report.position->has_left || report.silent_s < seconds - 0.01));
  });
}

}  // namespace trireme::agent
