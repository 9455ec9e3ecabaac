// SPDX-License-Identifier: Apache-2.0
// Real runs with planted trouble get their cause from `trireme diagnose`. The default run has those
// that need no quiet machine; TRIREME_FULL=1 runs every kind with seeds 1 to 3. tests/blind/run.sh
// prints a table of all kinds.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/text/json.h"
#include "tests/blind/plants.h"
#include "tests/cli/program.h"

namespace trireme::tests {
namespace {

bool is_full() { return std::getenv("TRIREME_FULL") != nullptr; }

TEST(BlindTest, planted_trouble_gets_its_cause) {
  const Scratch s;
  if (!trireme_json(s, {"version"})["gloo"].get<bool>()) GTEST_SKIP() << "built without Gloo";
  for (const Plant& plant : all_plants()) {
    if (!plant.is_quick && !is_full()) continue;
    int right = 0;
    const int cases = is_full() ? 3 : 1;
    std::string details;
    for (int seed = 1; seed <= cases; ++seed) {
      const BlindResult result = plant.run(static_cast<uint64_t>(seed));
      EXPECT_FALSE(is_wrong_rank(result)) << plant.name << ": " << result.details;
      right += is_right(plant, result) ? 1 : 0;
      details += result.details + "\n";
    }
    EXPECT_GE(3 * right, 2 * cases) << plant.name << ": " << details;
  }
}

}  // namespace
}  // namespace trireme::tests
