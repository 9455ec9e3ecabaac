// SPDX-License-Identifier: Apache-2.0
#include "base/text/count_text.h"

#include <gtest/gtest.h>

namespace trireme::base {
namespace {

TEST(CountText, agrees_with_its_noun) {
  EXPECT_EQ(count_text(0, "step"), "0 steps");
  EXPECT_EQ(count_text(1, "step"), "1 step");
  EXPECT_EQ(count_text(1234, "step"), "1234 steps");
  EXPECT_EQ(count_text(1, "entry", "entries"), "1 entry");
  EXPECT_EQ(count_text(2, "entry", "entries"), "2 entries");
}

}  // namespace
}  // namespace trireme::base
