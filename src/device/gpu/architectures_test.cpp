// SPDX-License-Identifier: Apache-2.0
#include "device/gpu/architectures.h"

#include <gtest/gtest.h>

namespace trireme::device {
namespace {

TEST(ArchitecturesTest, code_with_a_letter_runs_on_exactly_that_chip) {
  for (const char* list : {"90a", "90a-real", "90a-virtual", "80,90a"}) {
    EXPECT_TRUE(runs_on(list, 9, 0)) << list;
    EXPECT_FALSE(runs_on(list, 10, 0)) << list;
    EXPECT_FALSE(runs_on(list, 7, 5)) << list;
  }
}

TEST(ArchitecturesTest, plain_code_runs_on_later_minors_and_ptx_on_later_gpus) {
  EXPECT_TRUE(runs_on("80-real", 8, 6));
  EXPECT_FALSE(runs_on("80-real", 9, 0));
  EXPECT_FALSE(runs_on("86-real", 8, 0));
  EXPECT_TRUE(runs_on("80-virtual", 9, 0));
  EXPECT_TRUE(runs_on("80", 8, 6));
  EXPECT_FALSE(runs_on("80", 9, 0));
  EXPECT_FALSE(runs_on("90-virtual", 8, 9));
  EXPECT_FALSE(runs_on("", 9, 0));
}

TEST(ArchitecturesTest, a_build_without_code_is_named) {
  EXPECT_EQ(architectures_text("80,90a"), "sm 80,90a");
  EXPECT_EQ(architectures_text("80-virtual,90a"), "sm 80-virtual,90a");
  const std::string text = architectures_text("80-virtual,90a-virtual");
  EXPECT_TRUE(text.starts_with("sm 80,90a as PTX (")) << text;
  EXPECT_NE(text.find("-DCMAKE_CUDA_ARCHITECTURES=80,90a builds code"), std::string::npos) << text;
}

}  // namespace
}  // namespace trireme::device
