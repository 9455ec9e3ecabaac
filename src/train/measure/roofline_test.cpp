// SPDX-License-Identifier: Apache-2.0
#include "train/measure/roofline.h"

#include <gtest/gtest.h>

#include "base/text/json.h"

namespace trireme::train {
namespace {

TimedOp op(spec::OpKind kind, double flops, int64_t bytes, double begin, double end) {
  TimedOp timed;
  timed.cost.kind = kind;
  timed.cost.flops = flops;
  timed.cost.bytes = bytes;
  if (kind == spec::OpKind::gemm) timed.cost.layout = spec::GemmLayout::nt;
  timed.begin = begin;
  timed.end = end;
  return timed;
}

TEST(Roofline, groups_by_family_and_names_the_bound) {
  // Two steps of a product and two norms, on a device of 1 TFLOP/s and 1 GB/s.
  std::vector<TimedOp> ops;
  for (int step = 0; step < 2; ++step) {
    ops.push_back(op(spec::OpKind::gemm, 1e9, 1000, 0, 2e-3));
    ops.push_back(op(spec::OpKind::norm_forward, 0, 1000000, 2e-3, 4e-3));
    ops.push_back(op(spec::OpKind::norm_backward, 0, 2000000, 4e-3, 8e-3));
  }
  const Roofline roofline{family_times(ops, 2), {1e12, "given"}, {1e9, "given"}};
  ASSERT_EQ(roofline.families.size(), 2U);
  EXPECT_EQ(roofline.families[0].name, "norm");
  EXPECT_DOUBLE_EQ(roofline.families[0].seconds, 6e-3);
  EXPECT_FALSE(roofline.is_compute_bound(roofline.families[0]));
  EXPECT_DOUBLE_EQ(roofline.bound_seconds(roofline.families[0]), 3e-3);
  EXPECT_EQ(roofline.families[1].name, "gemm nt");
  EXPECT_TRUE(roofline.is_compute_bound(roofline.families[1]));
  EXPECT_DOUBLE_EQ(roofline.step_seconds(), 8e-3);
  const base::Json json = roofline.json();
  EXPECT_EQ(json["families"][1]["bound"], "compute");
  EXPECT_NEAR(json["families"][1]["of_bound"].get<double>(), 0.5, 1e-12);
  EXPECT_NEAR(json["families"][0]["of_step"].get<double>(), 0.75, 1e-12);
}

}  // namespace
}  // namespace trireme::train
