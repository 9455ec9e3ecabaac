// SPDX-License-Identifier: Apache-2.0
// A Pricer caches costs, times and memory by those fields of a layout that each depends on. A field
// that a key lacks would give a layout the price of another one: so every field is varied, and a
// Pricer that has priced other layouts must agree with a fresh one.
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/text/json.h"
#include "plan/price/price.h"
#include "plan/price/rules.h"
#include "plan/samples_test.h"

namespace trireme::plan {
namespace {

using base::Json;

// Returns values of each field of a layout, by its name in JSON.
std::map<std::string, std::vector<Json>> values_of_fields() {
  return {{"tp", {1, 2}},
          {"cp", {1, 2}},
          {"context_kind", {"gather", "ring"}},
          {"context_slices", {"zigzag", "contiguous"}},
          {"ulysses", {1, 2, 4}},
          {"pp", {1, 2, 4}},
          {"dp_replicate", {1, 2}},
          {"dp_shard", {1, 2, 4}},
          {"ep", {1, 2}},
          {"etp", {1, 2}},
          {"row_budget", {1.25, 1.5}},
          {"overflow", {"strict", "drop"}},
          {"expert_capacity", {0, 1.5}},
          {"zero_stage", {0, 1, 2, 3}},
          {"sequence_parallel", {false, true}},
          {"placement", {"dp-inside", "pp-inside"}},
          {"schedule", {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "dualpipe-v"}},
          {"chunks", {1, 2, 4}},
          {"custom_schedule", {nullptr}},
          {"first_layers", {Json::array(), {0, 2}}},
          {"send_buffers", {2, 3}},
          {"micro_batch", {1, 2}},
          {"accumulation", {}},  // follows from the batch
          {"logical_dp", {4, 8}},
          {"reduce", {"once", "each"}},
          {"recompute", {"none", "selective", "full"}},
          {"recompute_blocks", {-1, 2}},
          {"ffn_rows", {0, 128}},
          {"precision", {"fp32", "bf16", "fp8-tensor", "fp8-block"}},
          {"bf16_first", {0, 1}},
          {"bf16_last", {0, 1}},
          {"bf16_blocks", {Json::array(), {2}}},
          {"grad_dtype", {"f32", "bf16"}},
          {"optimizer", {"adamw", "muon"}},
          {"master_dtype", {"f32", "u16"}},
          {"reduce_dtype", {"f32", "bf16"}},
          {"reshard", {"always", "never"}},
          {"prefetch", {1, 2}},
          {"prefetch_after", {false, true}},
          {"head_chunk_rows", {0, 100}},
          {"deterministic", {true, false}}};
}

// Returns the layout with one field changed; none if that breaks a rule.
std::optional<Layout> with_field(const Job& job, const Stack& stack, const Layout& base,
                                 const std::string& field, const Json& value) {
  Json json = spec::to_json(base);
  json[field] = value;
  json["accumulation"] = 0;
  if (field != "logical_dp") json["logical_dp"] = 0;
  if (field == "schedule" || field == "pp") json["chunks"] = 0;
  if (field == "cp" || field == "context_kind") json["ulysses"] = 0;
  const Layout layout = filled(job, spec::layout_from_json(json, field));
  const std::string why =
      stack.is_engine() ? missing_in_engine(job, layout) : broken_rule(job, layout);
  return why.empty() ? std::optional(layout) : std::nullopt;
}

void expect_caches_of(const Stack& stack, const Job& job, const std::vector<std::string>& texts,
                      std::set<std::string>& varied) {
  const spec::Machine machine = shipped_machine("h100");
  const auto fields = values_of_fields();
  Pricer shared(job, machine, stack);
  for (const std::string& text : texts) {
    const Layout base = filled(job, layout_from_text(text, 8));
    ASSERT_EQ(missing_in_engine(job, base), "") << text;
    const Json json = spec::to_json(base);
    for (const auto& item : json.items()) {
      ASSERT_TRUE(fields.contains(item.key())) << "give values of the field " << item.key();
      for (const Json& value : fields.at(item.key())) {
        const auto layout = with_field(job, stack, base, item.key(), value);
        if (!layout) continue;
        if (*layout != base) varied.insert(item.key());
        Pricer fresh(job, machine, stack);
        EXPECT_TRUE(shared.price(*layout) == fresh.price(*layout))
            << stack.name << ", " << text << ", " << item.key() << " = " << value;
        EXPECT_EQ(shared.bytes_at_least(*layout), fresh.bytes_at_least(*layout))
            << stack.name << ", " << text << ", " << item.key() << " = " << value;
      }
    }
  }
}

TEST(PriceCaches, a_field_of_a_layout_that_changes_the_price_is_in_the_keys) {
  const Job dense = job_of("llama-15m", 32, 256);
  const Job routed = with_experts(dense, 8, 2, 128, 0, 1);
  std::set<std::string> varied;
  for (const Stack& stack : {trireme_stack(), shipped_stack("megatron-core")}) {
    expect_caches_of(stack, dense,
                     {"tp=2 sp pp=2 dp=2 zero=1", "pp=2 interleaved=2 dp=4 zero=2", "dp=8 zero=3",
                      "cp=2 dp=4 zero=3", "cp=4 kind=ulysses_ring ulysses=2 dp=2 zero=3",
                      "pp=4 zb-h1 dp=2", "fp8-block dp=8 zero=1", "dp=8 full zero=2"},
                     varied);
    expect_caches_of(stack, routed, {"dp=8 zero=3 ep=4", "pp=2 dp=4 zero=2 ep=2"}, varied);
  }
  std::set<std::string> missing;
  for (const auto& [field, values] : values_of_fields()) {
    if (values.size() > 1 && !varied.contains(field)) missing.insert(field);
  }
  EXPECT_TRUE(missing.empty()) << testing::PrintToString(missing);
}

}  // namespace
}  // namespace trireme::plan
