// SPDX-License-Identifier: Apache-2.0
// docs/rules-of-thumb.md is written by this test: every saying with what Trireme's own functions
// give for it. Where a number changes, the page must be looked at again.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/planner/rules_rig.h"

namespace trireme::tests {
namespace {

using Section = std::vector<Row> (*)();

std::string table_of(const std::vector<Section>& sections) {
  std::string text = "| saying | our number | verdict |\n|---|---|---|\n";
  for (const Section section : sections) {
    for (const Row& row : section()) {
      text += fmt::format("| {} | {} | {} |\n", row.saying, row.ours, row.verdict);
    }
  }
  return text;
}

std::string page() {
  std::string text =
      "# Rules of thumb, tested\n\n"
      "What the field says about training large models, each with the number that Trireme's own "
      "functions give: parameters and bytes from `spec`, times of collectives, layouts and "
      "searches from `plan`, pipelines from `sim`. Written by "
      "`tests/planner/rules_of_thumb_test.cpp`, which also asserts every number or order; do not "
      "edit it by hand.\n\n"
      "Unless a row says otherwise: machines are those of `machines/` (`h100`: 8 in a domain of "
      "NVLink, one adapter of 400 Gb/s each; `gb200`: 72 in a domain), 70B and 405B are Llama 3 "
      "with sequences of 8,192 tokens, products are bf16 with gradients summed in fp32 in any "
      "order, the "
      "stack is Trireme's (collectives of tp are not overlapped), and a layout is the fastest of "
      "its "
      "kind over schedule, micro-batch, recompute and sequence parallelism that fits in 95 % of "
      "memory. \"Arithmetic\" marks what no function of Trireme computes.\n\n";
  text += "## Hold exactly\n\n" + table_of({state_rows, step_rows}) + "\n";
  text += "## Hold under conditions\n\n" + table_of({sharding_rows, placement_rows}) + "\n";
  text += "## Do not hold, or contradict each other\n\n" +
          table_of({memory_contradictions, rate_contradictions, failure_contradictions});
  return text;
}

TEST(RulesOfThumb, the_page_says_what_the_model_gives) {
  const auto path = std::filesystem::path(TRIREME_SOURCE_DIR) / "docs" / "rules-of-thumb.md";
  std::ifstream in(path, std::ios::binary);
  const std::string written{std::istreambuf_iterator<char>(in), {}};
  const std::string wanted = page();
  if (written == wanted) return;
  const auto fresh = std::filesystem::current_path() / "rules-of-thumb.md";
  std::ofstream(fresh, std::ios::binary) << wanted;
  EXPECT_EQ(written, wanted) << "Read the difference: a verdict may have to change. Then\n  cp "
                             << fresh.string() << " " << path.string();
}

}  // namespace
}  // namespace trireme::tests
