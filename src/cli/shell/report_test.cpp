// SPDX-License-Identifier: Apache-2.0
#include "cli/shell/report.h"

#include <gtest/gtest.h>

#include "agent/exit_codes.h"
#include "base/error.h"

namespace trireme::cli {
namespace {

TEST(Report, errors_have_the_exit_codes_of_the_table) {
  EXPECT_EQ(exit_code_of(base::ConfigError("x")), agent::exit_bad_call);
  EXPECT_EQ(exit_code_of(base::Stopped("x")), agent::exit_stopped);
  EXPECT_EQ(exit_code_of(base::Fenced("x")), agent::exit_taken_over);
  EXPECT_EQ(exit_code_of(base::Diverged("x")), agent::exit_diverged);
  EXPECT_EQ(exit_code_of(base::CommAborted("x")), agent::exit_failed);
}

}  // namespace
}  // namespace trireme::cli
