// SPDX-License-Identifier: Apache-2.0
#include "tests/record/record_rig.h"

#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "obs/files/event_log.h"

namespace trireme::tests {

void write_record_run(const Scratch& scratch) {
  write_stops_run(scratch);
  scratch.write("stops.toml",
                replaced(scratch.read("stops.toml"), "[system]\n", "[system]\ndevice = \"cpu\"\n"));
}

std::vector<base::Json> json_lines(const std::string& text) {
  std::vector<base::Json> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    lines.push_back(base::Json::parse(line, nullptr, false));
    EXPECT_TRUE(lines.back().is_object()) << line;
  }
  return lines;
}

std::vector<base::Json> train_lines(const Scratch& scratch) {
  std::vector<base::Json> lines;
  for (base::Json& line : json_lines(scratch.read("run/metrics.jsonl"))) {
    if (line.at("kind") == "train") lines.push_back(std::move(line));
  }
  return lines;
}

std::vector<obs::PhaseRecord> spans(const Scratch& scratch) {
  std::vector<obs::PhaseRecord> all;
  const int64_t damaged = obs::read_phases(
      scratch.at("run"), [&](const obs::PhaseRecord& record) { all.push_back(record); });
  EXPECT_EQ(damaged, 0);
  return all;
}

std::vector<obs::Event> events_of(const Scratch& scratch, obs::EventKind kind) {
  int64_t damaged = 0;
  std::vector<obs::Event> events;
  for (const obs::Event& event : obs::read_events(scratch.at("run"), &damaged)) {
    if (event.kind == kind) events.push_back(event);
  }
  EXPECT_EQ(damaged, 0);
  return events;
}

double seconds_of(const analysis::Ledger& ledger, obs::Phase phase) {
  return ledger.seconds[static_cast<size_t>(phase)];
}

analysis::Ledger expect_closed(const Scratch& scratch) {
  constexpr double limit_seconds = 1e-3;
  const std::vector<obs::PhaseRecord> all = spans(scratch);
  EXPECT_FALSE(all.empty());
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_NEAR(all[i].sum(), all[i].end - all[i].begin, limit_seconds) << line_of(all[i]);
    for (const double seconds : all[i].seconds) EXPECT_GE(seconds, 0) << line_of(all[i]);
    const double expected_begin = i > 0 ? all[i - 1].end : all[i].begin;
    EXPECT_NEAR(all[i].begin, expected_begin, 1e-6) << line_of(all[i]);
  }
  const analysis::Ledger ledger = analysis::read_ledger(scratch.at("run"));
  for (const analysis::LedgerAttempt& attempt : ledger.attempts) {
    EXPECT_LE(std::abs(attempt.sum_error_seconds()), limit_seconds) << attempt.attempt;
  }
  EXPECT_LE(ledger.unknown_share(), 0.01);
  return ledger;
}

}  // namespace trireme::tests
