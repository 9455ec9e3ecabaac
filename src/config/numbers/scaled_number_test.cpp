// SPDX-License-Identifier: Apache-2.0
#include "config/numbers/scaled_number.h"

#include <gtest/gtest.h>

namespace trireme::config {
namespace {

TEST(ScaledNumber, suffixes_are_powers_of_ten_in_any_case) {
  EXPECT_EQ(scaled_number("100B"), 100e9);
  EXPECT_EQ(scaled_number("1.5T"), 1.5e12);
  EXPECT_EQ(scaled_number("4m"), 4e6);
  EXPECT_EQ(scaled_number("0.1k"), 100);
  EXPECT_EQ(scaled_number("1.1k"), 1100);
  EXPECT_EQ(scaled_number("2.5"), 2.5);
  EXPECT_EQ(scaled_number("4e6"), 4e6);
  EXPECT_EQ(scaled_integer("2k"), 2000);
  EXPECT_EQ(scaled_integer("2K"), 2000);
  EXPECT_EQ(scaled_integer("1.5k"), 1500);
  EXPECT_EQ(scaled_integer("1.50k"), 1500);
  EXPECT_EQ(scaled_integer("100G"), 100'000'000'000);
  EXPECT_EQ(scaled_integer("-3k"), -3000);
  EXPECT_EQ(scaled_integer("+3k"), 3000);
  EXPECT_EQ(scaled_integer("12"), 12);
}

TEST(ScaledNumber, other_texts_are_no_numbers) {
  for (const char* text : {"", "k", "4Mi", "4 M", "4MB", "1.2345k", "1e3", "0x10", "99999999T",
                           "1..5k", "1.5", "abc", "4kk", "."}) {
    EXPECT_FALSE(scaled_integer(text)) << text;
  }
  for (const char* text :
       {"", "k", "4Mi", "4 M", "4MB", "1e3k", "abc", "4kk", ".", ".k", "1..5k"}) {
    EXPECT_FALSE(scaled_number(text)) << text;
  }
}

}  // namespace
}  // namespace trireme::config
