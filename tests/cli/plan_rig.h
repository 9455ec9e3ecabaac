// SPDX-License-Identifier: Apache-2.0
// Shared by tests of `trireme plan`.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/text/json.h"
#include "tests/cli/program.h"

namespace trireme::tests {

inline base::Json plan_json(const Scratch& s, const std::string& line) {
  return trireme_json(s, words_of(line));
}

inline std::string plan_output(const Scratch& s, const std::string& line, int exit_code = 0) {
  const Outcome outcome = trireme(s, words_of(line));
  EXPECT_EQ(outcome.exit_code, exit_code) << outcome.err;
  return outcome.out;
}

inline bool has_part(const base::Json& lines, const std::string& part) {
  return std::any_of(lines.begin(), lines.end(), [&](const base::Json& line) {
    return line.get<std::string>().find(part) != std::string::npos;
  });
}

inline double sum_of(const base::Json& parts) {
  double sum = 0;
  for (const base::Json& part : parts) sum += part.get<double>();
  return sum;
}

inline void expect_sums(const base::Json& priced) {
  const double seconds = priced.at("seconds"), bytes = priced.at("bytes");
  EXPECT_GT(seconds, 0);
  EXPECT_GT(bytes, 0);
  // Tolerance: rounding errors of some tens of numbers.
  EXPECT_NEAR(sum_of(priced.at("terms")), seconds, 1e-13 * seconds);
  EXPECT_NEAR(sum_of(priced.at("items")), bytes, 1e-13 * bytes);
}

}  // namespace trireme::tests
