// SPDX-License-Identifier: Apache-2.0
// Calls of a newcomer as one line each.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "tests/cli/program.h"

namespace trireme::tests {

constexpr int wrong_call = 2;

inline bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

// Runs `trireme LINE` and expects the exit code.
inline Outcome run_line(const Scratch& s, const std::string& line, int exit_code = 0) {
  Outcome outcome = trireme(s, words_of(line));
  EXPECT_EQ(outcome.exit_code, exit_code) << line << "\n" << outcome.out << outcome.err;
  return outcome;
}

// Expects a wrong call whose message has all parts.
inline void expect_refused(const Scratch& s, const std::string& line,
                           const std::vector<std::string>& wanted) {
  const Outcome outcome = run_line(s, line, wrong_call);
  for (const std::string& part : wanted) {
    EXPECT_TRUE(has(outcome.err, part)) << "wanted: " << part << "\nfound: " << outcome.err;
  }
}

}  // namespace trireme::tests
