// SPDX-License-Identifier: Apache-2.0
#include "base/text/type_spelling.h"

#include <gtest/gtest.h>

namespace trireme::base {
namespace {

TEST(TypeSpelling, every_spelling_of_a_type_has_one_short_name) {
  for (const char* word : {"f32", "fp32", "float32", "float", "torch.float32", "FP32"}) {
    EXPECT_EQ(short_type_name(word), "f32") << word;
  }
  for (const char* word : {"bf16", "bfloat16", "torch.bfloat16", "BF16"}) {
    EXPECT_EQ(short_type_name(word), "bf16") << word;
  }
  for (const char* word : {"fp16", "float16", "half"}) {
    EXPECT_EQ(short_type_name(word), "f16") << word;
  }
  EXPECT_EQ(short_type_name("uint16"), "u16");
}

TEST(TypeSpelling, other_words_are_not_types) {
  for (const char* word : {"", "auto", "f", "float3", "torch.", "bf16 ", "fp32x"}) {
    EXPECT_EQ(short_type_name(word), std::nullopt) << word;
  }
}

}  // namespace
}  // namespace trireme::base
