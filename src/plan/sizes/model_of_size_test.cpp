// SPDX-License-Identifier: Apache-2.0
#include "plan/sizes/model_of_size.h"

#include <gtest/gtest.h>

#include <cmath>

namespace trireme::plan {
namespace {

TEST(ModelOfSize, has_the_size_and_the_proportions_that_are_wanted) {
  for (double wanted = 2e7; wanted < 1e12; wanted *= 1.37) {
    const spec::ModelDims dims = model_of_size(wanted, 8192);
    const spec::ModelSpec model = spec::make_model(dims);
    const auto size = static_cast<double>(spec::parameter_count(model));
    EXPECT_NEAR(size / wanted, 1, 0.06) << wanted;
    EXPECT_EQ(dims.hidden % 128, 0);
    EXPECT_EQ(dims.heads % dims.kv_heads, 0);
    const double aspect = static_cast<double>(dims.hidden) / dims.layers;
    EXPECT_GT(aspect, 30) << wanted;
    EXPECT_LT(aspect, 260) << wanted;
  }
}

TEST(ModelOfSize, of_8_billion_is_like_llama_3) {
  const spec::ModelDims dims = model_of_size(8e9, 8192);
  EXPECT_NEAR(static_cast<double>(dims.hidden), 4096, 600);
  EXPECT_NEAR(dims.layers, 32, 9);
  EXPECT_EQ(dims.vocab, 128256);
  EXPECT_FALSE(dims.tied_head);
}

TEST(ModelOfSize, batches_grow_with_the_model_and_leave_a_thousand_steps) {
  EXPECT_EQ(batch_tokens_for(1e8, 1e12), 1 << 19);
  EXPECT_EQ(batch_tokens_for(2e9, 1e12), 1 << 20);
  EXPECT_EQ(batch_tokens_for(8e9, 1e12), 1 << 21);
  EXPECT_EQ(batch_tokens_for(70e9, 1e12), 1 << 22);
  EXPECT_GE(1e8 / batch_tokens_for(2e9, 1e8), 1000);
}

}  // namespace
}  // namespace trireme::plan
