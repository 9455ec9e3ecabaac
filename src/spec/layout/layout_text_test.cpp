// SPDX-License-Identifier: Apache-2.0
#include "spec/layout/layout_text.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/text/json.h"
#include "schedule/catalogue.h"
#include "spec/layout/rules.h"

namespace trireme::spec {
namespace {

std::string refused(const std::string& text, int64_t processors = 8) {
  try {
    (void)layout_from_text(text, processors);
  } catch (const base::ConfigError& error) {
    return error.what();
  }
  return "not refused";
}

TEST(LayoutText, recipes_of_fp8_name_their_blocks_in_bf16) {
  Layout l = layout_from_text("fp8-block bf16-first=2 bf16-last=1 bf16-blocks=3+7", 1);
  EXPECT_EQ(l.precision, Precision::fp8_block);
  EXPECT_EQ(l.bf16_first, 2);
  EXPECT_EQ(l.bf16_last, 1);
  EXPECT_EQ(l.bf16_blocks, (std::vector<int>{3, 7}));
  EXPECT_NE(to_text(l).find(" fp8-block bf16-first=2 bf16-last=1 bf16-blocks=3+7"),
            std::string::npos)
      << to_text(l);
  EXPECT_EQ(layout_from_text(to_text(l), 1), l);
  EXPECT_EQ(layout_from_json(to_json(l), "layout"), l);
  EXPECT_NE(words(l).find("fp8-block with blocks in bf16: first 2, last 1, 3/7"), std::string::npos)
      << words(l);
  l.precision = Precision::bf16;
  EXPECT_EQ(filled(l, {.seq_len = 16}).bf16_blocks, std::vector<int>{}) << "no meaning";
  EXPECT_EQ(layout_from_text("fp8", 1).precision, Precision::fp8);
  EXPECT_EQ(to_text(layout_from_text("fp8", 1)).find("bf16-"), std::string::npos);
  EXPECT_THROW((void)layout_from_text("fp8 bf16-blocks=3+x", 1), base::ConfigError);
  base::Json json = to_json(l);
  for (const char* key : {"bf16_first", "bf16_last", "bf16_blocks"}) json.erase(key);
  EXPECT_EQ(layout_from_json(json, "layout").bf16_first, 0) << "earlier versions had no fp8";
}

TEST(LayoutText, missing_words_mean_defaults) {
  Layout l;
  l.dp_replicate = 8;
  EXPECT_EQ(layout_from_text("", 8), l);
  l = {};
  l.tp = 8;
  l.sequence_parallel = true;
  l.pp = 4;
  l.schedule = schedule::Kind::interleaved;
  l.chunks = 3;
  l.dp_shard = 2;
  l.zero_stage = 1;
  l.micro_batch = 2;
  l.recompute = Recompute::full;
  EXPECT_EQ(layout_from_text("tp=8 sp, pp=4 interleaved=3 zero=1\tmicro=2 full", 64), l);
  EXPECT_EQ(layout_from_text("pp=2 interleaved", 2).chunks, 0);
  EXPECT_EQ(layout_from_text("pp=2 interleaved=4 zb-h1", 2).chunks, 0);
  EXPECT_EQ(layout_from_text("dp=8 zero=3 shard=4", 8).dp_replicate, 2);
  EXPECT_EQ(layout_from_text("full blocks=3 grads=bf16 masters=u16 fast", 1).recompute_blocks, 3);
}

TEST(LayoutText, errors_name_the_wrong_word) {
  EXPECT_EQ(refused("tp=x"), "layout: 'tp=x': expected a number from 1 to 1048576");
  EXPECT_EQ(refused("tp=0"), "layout: 'tp=0': expected a number from 1 to 1048576");
  EXPECT_EQ(refused("zero=4"), "layout: 'zero=4': expected a number from 0 to 3");
  EXPECT_TRUE(refused("tq=2").starts_with("layout: 'tq=2' is not one of tp=N"));
  EXPECT_TRUE(refused("slow").starts_with("layout: 'slow' is not one of tp=N"));
  EXPECT_EQ(refused("grads=f16"), "layout: 'grads=f16': expected f32 or bf16");
  EXPECT_EQ(refused("zero=3 shard=3"),
            "layout 'zero=3 shard=3': dp = 8 does not divide by shard = 3");
  EXPECT_EQ(refused("tp=3"), "layout 'tp=3': 8 ranks do not divide by tp x cp x pp = 3");
  EXPECT_EQ(refused("tp=2 dp=2"),
            "layout 'tp=2 dp=2': tp x cp x pp x dp = 2 x 1 x 1 x 2 is not the 8 ranks");
  EXPECT_NE(refused("tp=1048576 pp=1048576 cp=1048576 dp=1048576").find("is not the 8 ranks"),
            std::string::npos);
}

TEST(LayoutText, words_describe_fields_that_differ_from_defaults) {
  Layout l = layout_from_text("tp=8 sp pp=4 interleaved=3 zero=1 micro=2 full", 1024);
  EXPECT_EQ(words(l),
            "tp 8 sp, pp 4 interleaved x 3, dp 32 ZeRO-1, micro-batch 2, full recompute, bf16");
  l.placement = Placement::pp_inside;
  EXPECT_TRUE(words(l).ends_with(", stages side by side"));
  EXPECT_EQ(words({}), "dp 1, micro-batch 1, bf16");
}

TEST(LayoutText, context_parallelism_has_a_kind_slices_and_a_product) {
  Layout l;
  l.cp = 4;
  l.context_kind = ContextKind::ulysses_gather;
  l.context_slices = ContextSlices::striped;
  l.ulysses = 2;
  EXPECT_EQ(layout_from_text("cp=4 ulysses=2 kind=ulysses_gather slices=striped", 4), l);
  EXPECT_NE(to_text(l).find(" cp=4 ulysses=2 kind=ulysses_gather slices=striped "),
            std::string::npos);
  EXPECT_TRUE(words(l).starts_with("cp 4 ulysses 2 x gather 2 striped, ")) << words(l);
  EXPECT_TRUE(words(layout_from_text("cp=2 kind=ring", 2)).starts_with("cp 2 ring, "));
  // Copies of the state that ranks along cp share.
  Layout copies;
  copies.cp = 2;
  copies.dp_replicate = 4;
  copies.zero_stage = 3;
  EXPECT_EQ(layout_from_text(to_text(copies), 8), copies) << to_text(copies);
  EXPECT_NE(words(copies).find("dp 4 ZeRO-3 over cp"), std::string::npos) << words(copies);
  EXPECT_EQ(refused("cp=2 kind=rings"),
            "layout: 'kind=rings': expected ulysses, gather, ring, ulysses_gather, ulysses_ring");
  EXPECT_EQ(refused("cp=2 slices=thin"),
            "layout: 'slices=thin': expected zigzag, contiguous, striped, blocks");
  EXPECT_EQ(refused("cp=2 ulysses=0"), "layout: 'ulysses=0': expected a number from 1 to 1048576");
}

TEST(LayoutText, without_a_number_of_ranks_the_degrees_decide) {
  EXPECT_EQ(layout_from_text("tp=2 pp=4 dp=3 zero=1", 0), layout_from_text("tp=2 pp=4 zero=1", 24));
  EXPECT_EQ(layout_from_text("tp=2", 0).ranks(), 2);
  EXPECT_EQ(layout_from_text("", 0), Layout{});
  // Degrees whose product exceeds any type are left to the rules.
  const std::string max_degree = "1048576";
  const Layout l = layout_from_text(
      "tp=" + max_degree + " cp=" + max_degree + " pp=" + max_degree + " dp=" + max_degree, 0);
  EXPECT_FALSE(degrees_are_in_range(l));
}

TEST(LayoutText, fields_that_no_word_sets_are_those_of_another_layout) {
  Layout others;
  others.micro_batch = 4;
  others.precision = Precision::fp32;
  others.recompute = Recompute::full;
  Layout expected = others;
  expected.tp = 2;
  expected.precision = Precision::bf16;
  EXPECT_EQ(layout_from_text("tp=2 bf16", 0, others), expected);
  expected.micro_batch = 1;
  EXPECT_EQ(layout_from_text("tp=2 bf16 micro=1", 0, others), expected);
}

TEST(LayoutText, every_schedule_of_the_catalogue_is_a_word) {
  for (const schedule::Named& named : schedule::catalogue()) {
    EXPECT_EQ(layout_from_text(std::string("pp=2 ") + std::string(named.name), 2).schedule,
              named.kind);
  }
}

}  // namespace
}  // namespace trireme::spec
