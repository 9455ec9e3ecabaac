// SPDX-License-Identifier: Apache-2.0
#include "plan/validate/published_words.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "plan/validate/published_row.h"

namespace trireme::plan {
namespace {

template <typename Read>
std::string why_unpriced(Read read) {
  try {
    (void)read();
  } catch (const Unpriced& unpriced) {
    return unpriced.reason;
  }
  return "";
}

TEST(PublishedWords, formats_are_understood) {
  const std::vector<std::pair<const char*, Precision>> cases = {
      {"bf16", Precision::bf16},
      {"amp_bf16", Precision::bf16},
      {"bf16 params/acts, fp32 master+opt", Precision::bf16},
      {"bf16/fp16", Precision::bf16},
      {"fp16 mixed", Precision::bf16},
      {"fp32", Precision::fp32},
      {"float8 tensorwise", Precision::fp8},
      {"float8 rowwise", Precision::fp8},
      {"bf16 with float8", Precision::fp8},
      {"fp8 (delayed scaling)", Precision::fp8},
      {"FP8-CS (FP8-MX)", Precision::fp8},
      {"MXFP8", Precision::fp8},
      {"NVFP4", Precision::fp4},
  };
  for (const auto& [text, precision] : cases) EXPECT_EQ(stated_precision(text), precision) << text;
  EXPECT_FALSE(stated_precision(""));
}

TEST(PublishedWords, recompute_is_understood) {
  EXPECT_EQ(stated_recompute("full"), spec::Recompute::full);
  EXPECT_EQ(stated_recompute("selective (attention core)"), spec::Recompute::selective);
  EXPECT_EQ(stated_recompute("gelu recompute (-r 1)"), spec::Recompute::selective);
  EXPECT_EQ(stated_recompute("none (-r 0)"), spec::Recompute::none);
  EXPECT_FALSE(stated_recompute(""));
}

TEST(PublishedWords, unknown_words_are_refused) {
  for (const char* text : {"int8", "tf32", "fp6", "bf16 spindled", "mixed", "float9 tensorwise"}) {
    EXPECT_NE(why_unpriced([&] { return stated_precision(text); }), "") << text;
  }
  EXPECT_EQ(why_unpriced([] {
              return stated_precision("int8 weights");
            }).find("precision = int8 weights: 'int8' is not understood; expected one of fp4"),
            0U);
  for (const char* text : {"offloaded", "full and offloaded", "attention"}) {
    EXPECT_NE(why_unpriced([&] { return stated_recompute(text); }), "") << text;
  }
  for (const char* text : {"1F1B", "interleaved 1F1B (v=2)", "ZB-2p", "GPipe", ""}) {
    EXPECT_EQ(why_unpriced([&] { return check_stated_schedule(text), 0; }), "") << text;
  }
  EXPECT_NE(why_unpriced([] { return check_stated_schedule("dual pipe"), 0; }), "");
}

}  // namespace
}  // namespace trireme::plan
