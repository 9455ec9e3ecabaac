// SPDX-License-Identifier: Apache-2.0
// Every layout of up to eight ranks: data parallel, ZeRO-1, -2, -3, HSDP, tensor and sequence
// parallel, with and without accumulation, fp32 and bf16. Without tp a layout has the bits of one
// rank after ten steps, with tp it is within a bound of it. The default run takes a sample; with
// TRIREME_FULL set, as in test.sh --full, it takes all.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "tests/ranks/near_rig.h"

namespace trireme::tests {
namespace {

constexpr int max_ranks = 8;

spec::ModelDims grid_gpt2() {
  spec::ModelDims dims = tiny_gpt2();
  dims.name += "-of-grid";
  dims.hidden = 32;
  dims.heads = 8;
  dims.ffn = 48;
  dims.vocab = 61;
  return dims;
}

spec::ModelDims grid_llama() {
  spec::ModelDims dims = tiny_llama();
  dims.name += "-of-grid";
  dims.hidden = 32;
  dims.heads = 8;
  dims.kv_heads = 8;
  dims.head_dim = 4;
  dims.ffn = 48;
  dims.vocab = 61;
  return dims;
}

std::vector<Layout> all_layouts() {
  std::vector<Layout> all;
  const auto add = [&all](Layout layout) {
    for (const spec::ModelDims& dims : {grid_gpt2(), grid_llama()}) {
      for (const char* recipe : {"fp32", "bf16"}) {
        for (const int microbatches : {1, 2}) {
          layout.dims = dims;
          layout.recipe = recipe;
          layout.microbatches = microbatches;
          layout.reduce = layout.stage >= 2 && microbatches > 1 ? spec::ReduceWhen::each
                                                                : spec::ReduceWhen::once;
          all.push_back(layout);
        }
      }
    }
  };
  for (const int tp : {1, 2, 4, 8}) {
    for (int zero = 1; zero * tp <= max_ranks; ++zero) {
      for (int dp = 1; dp * zero * tp <= max_ranks; ++dp) {
        for (int stage = zero > 1 ? 1 : 0; stage <= (zero > 1 ? 3 : 0); ++stage) {
          Layout layout{.dp = dp, .zero = zero, .stage = stage, .tp = tp, .logical_dp = dp * zero};
          layout.sequences = 4;  // of six tokens: 24 tokens divide by every tp
          add(layout);
          layout.sequence_parallel = true;
          if (tp > 1) add(layout);
        }
      }
    }
  }
  return all;
}

void expect_bits_of_one_rank(const Layout& layout) {
  constexpr int steps = 10;
  static std::map<std::string, std::string> known;
  const auto [hash, is_new] = known.try_emplace(bits_key(layout));
  if (is_new) {
    Layout one = layout;
    one.dp = one.zero = 1;
    one.stage = 0;
    hash->second = train_layout(one, steps);
  }
  EXPECT_EQ(train_layout(layout, steps), hash->second) << to_string(layout);
}

TEST(GridTest, every_layout_trains_as_one_rank_does) {
  const std::vector<Layout> all = all_layouts();
  EXPECT_GT(all.size(), 600U);
  // Odd, so that the sample covers all models, recipes and accumulations.
  const size_t step = std::getenv("TRIREME_FULL") != nullptr ? 1 : 5;
  for (size_t i = 0; i < all.size(); i += step) {
    const Layout& layout = all[i];
    if (layout.tp == 1) {
      expect_bits_of_one_rank(layout);
    } else {
      expect_near_one_rank(layout, layout.recipe == "fp32" ? 1e-5 : 5e-2);
    }
  }
}

}  // namespace
}  // namespace trireme::tests
