// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/sizes/plan_deadline.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace trireme::cli {
namespace {

constexpr double noon_of_2026_11_18 = 1794960000 + 43200;  // seconds since 1970

std::string deadline_refusal(std::string_view text) {
  try {
    (void)days_until(text, noon_of_2026_11_18);
  } catch (const base::ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(PlanDeadline, is_a_number_of_days_or_the_start_of_a_day) {
  EXPECT_EQ(days_until("30", 0), 30);
  EXPECT_EQ(days_until("0.5", 0), 0.5);
  EXPECT_EQ(days_until("2026-11-19", noon_of_2026_11_18), 0.5);
  EXPECT_EQ(days_until("2027-11-18", noon_of_2026_11_18), 364.5);
}

TEST(PlanDeadline, other_texts_are_refused_with_what_is_allowed) {
  for (const char* text : {"soon", "", "2026-13-01", "2027-02-30", "18.11.2026", "2027-1-1x"}) {
    EXPECT_NE(deadline_refusal(text).find("a number of days, as 30, or a date, as 2027-01-31"),
              std::string::npos)
        << text << ": " << deadline_refusal(text);
  }
  EXPECT_NE(deadline_refusal("2026-11-18").find("this day began today"), std::string::npos);
  EXPECT_NE(deadline_refusal("2025-11-18").find("began 366 days ago"), std::string::npos)
      << deadline_refusal("2025-11-18");
  EXPECT_NE(deadline_refusal("0").find("must be above 0"), std::string::npos);
}

}  // namespace
}  // namespace trireme::cli
