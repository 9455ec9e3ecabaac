// SPDX-License-Identifier: Apache-2.0
// Writes docs/rules-of-thumb.md: every rule of thumb with the number that Trireme's functions
// return. If a number changes, a person must read the page again.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/planner/rules_rig.h"

namespace trireme::tests {
namespace {

using Section = std::vector<Row> (*)();

std::string_view name_of(Evidence evidence) {
  constexpr std::array<std::string_view, static_cast<size_t>(Evidence::count)> names = {
      "formula", "published", "arithmetic", "nothing", "regression"};
  return names[static_cast<size_t>(evidence)];
}

std::string table_of(const std::vector<Section>& sections) {
  std::string text =
      "| rule of thumb | Trireme's number | verdict | checked against |\n|---|---|---|---|\n";
  for (const Section section : sections) {
    for (const Row& row : section()) {
      text += fmt::format("| {} | {} | {} | {} |\n", row.rule, row.ours, row.verdict,
                          name_of(row.evidence));
    }
  }
  return text;
}

std::string page() {
  std::string text =
      "# Rules of thumb\n\n"
      "Look up here how far common rules of thumb about training large models agree with "
      "Trireme. Each row has the number that Trireme's functions return: parameters and bytes "
      "from `spec`, times of collectives, layouts and searches from `plan`, pipelines from `sim`. "
      "`tests/planner/rules_of_thumb_test.cpp` writes this page and asserts its numbers; do not "
      "edit it by hand.\n\n"
      "The last column shows how much a row proves:\n\n"
      "- *formula*: the test compares the number with a formula that it contains, with literal "
      "numbers.\n"
      "- *published*: the test compares the number with a published figure.\n"
      "- *arithmetic*: no function of Trireme computes it.\n"
      "- *nothing*: the row has no number.\n"
      "- *regression*: the test compares results of the planner with each other. Such a row "
      "guards against changes; it is no evidence that the planner is right.\n\n"
      "Unless a row states otherwise:\n\n"
      "- Machines are those of `machines/`: `h100` has 8 GPUs in an NVLink domain and one adapter "
      "of 400 Gb/s per GPU, `gb200` has 72 GPUs in a domain.\n"
      "- 70B and 405B are Llama 3 with sequences of 8,192 tokens.\n"
      "- Products are bf16; gradients are summed in fp32, in any order.\n"
      "- The stack is Trireme's, which does not overlap collectives of tp.\n"
      "- A layout is the fastest of its kind over schedule, micro-batch, recompute and sequence "
      "parallelism that fits in 95 % of memory.\n\n";
  text += "## Rules that hold exactly\n\n" + table_of({state_rows, step_rows}) + "\n";
  text +=
      "## Rules that hold under conditions\n\n" + table_of({sharding_rows, placement_rows}) + "\n";
  text += "## Rules that do not hold, or contradict each other\n\n" +
          table_of({memory_contradictions, rate_contradictions, failure_contradictions});
  return text;
}

TEST(RulesOfThumb, the_page_has_the_computed_numbers) {
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
