// SPDX-License-Identifier: Apache-2.0
#include "plan/search/kinds.h"

#include <gtest/gtest.h>

#include "plan/samples_test.h"

namespace trireme::plan {
namespace {

Layout of_text(const std::string& text) { return layout_from_text(text, 64); }

TEST(Kinds, layouts_have_their_common_kind) {
  EXPECT_EQ(kind_of(of_text("")), LayoutKind::ddp);
  EXPECT_EQ(kind_of(of_text("zero=3")), LayoutKind::fsdp);
  EXPECT_EQ(kind_of(of_text("tp=8 zero=3")), LayoutKind::tensor);
  EXPECT_EQ(kind_of(of_text("tp=8 pp=2")), LayoutKind::one_f_one_b);
  EXPECT_EQ(kind_of(of_text("pp=2 gpipe")), LayoutKind::one_f_one_b);
  EXPECT_EQ(kind_of(of_text("pp=2 interleaved=4")), LayoutKind::interleaved);
  for (const std::string name : {"zb-h1", "zb-h2", "zb-v", "dualpipev"}) {
    EXPECT_EQ(kind_of(of_text("pp=2 " + name)), LayoutKind::zero_bubble) << name;
  }
  EXPECT_EQ(kind_of(of_text("cp=2 pp=2 zb-v")), LayoutKind::context);
}

TEST(Kinds, simpler_layouts_come_first) {
  const std::vector<std::string> in_order = {"zero=3",
                                             "tp=64",
                                             "zero=3 selective",
                                             "zero=3 full",
                                             "pp=64",
                                             "tp=2 zero=3",
                                             "tp=8 zero=3",
                                             "tp=2 zero=3 full",
                                             "pp=2",
                                             "pp=2 full",
                                             "pp=2 zb-h1",
                                             "pp=2 interleaved=2",
                                             "pp=2 interleaved=3",
                                             "tp=2 pp=2",
                                             "tp=2 pp=2 interleaved=2",
                                             "tp=2 cp=2 pp=2"};
  for (size_t i = 0; i + 1 < in_order.size(); ++i) {
    EXPECT_LT(simplicity_of(of_text(in_order[i])), simplicity_of(of_text(in_order[i + 1])))
        << in_order[i] << " and " << in_order[i + 1];
  }
  // ZeRO stage and micro-batch do not make a layout harder to run.
  EXPECT_EQ(simplicity_of(of_text("zero=1 micro=2")), simplicity_of(of_text("zero=3 micro=4")));
}

TEST(Kinds, the_fastest_of_each_are_kept_in_order) {
  Kinds kinds;
  for (const double seconds : {5.0, 3.0, 4.0, 1.0, 2.0}) {
    Price price;
    price.seconds = seconds;
    kinds.add(of_text("tp=2 zero=1"), price);
  }
  Price slow;
  slow.seconds = 9;
  kinds.add(of_text("zero=3"), slow);
  const auto& tensor = kinds.of_kind().at(LayoutKind::tensor);
  ASSERT_EQ(tensor.size(), Kinds::max_kept);
  EXPECT_EQ(tensor[0].price.seconds, 1);
  EXPECT_EQ(tensor[1].price.seconds, 2);
  EXPECT_EQ(tensor[2].price.seconds, 3);
  EXPECT_EQ(kinds.of_kind().at(LayoutKind::fsdp).size(), 1U);
  EXPECT_EQ(kinds.by_simplicity().begin()->second.front().price.seconds, 9);
}

}  // namespace
}  // namespace trireme::plan
