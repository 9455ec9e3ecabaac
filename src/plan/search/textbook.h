// SPDX-License-Identifier: Apache-2.0
// The common textbook recipe: as little tensor parallelism as memory allows and never across nodes;
// then stages across nodes; ZeRO-1 over the remaining ranks; enough micro-batches to keep the
// bubble small. It is printed beside the planner's answer.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/job.h"
#include "plan/price/price.h"
#include "spec/machine.h"

namespace trireme::plan {

struct TextbookStep {
  std::string what;  // "tp 8: ..."
  std::string why;
};
struct Textbook {
  std::optional<Layout> layout;  // none: the recipe finds nothing that fits
  std::vector<TextbookStep> steps;
};
Textbook textbook(const Job&, const spec::Machine&, int64_t gpus, double memory_fraction, Pricer&,
                  Precision = Precision::bf16);

// Returns human-readable differences between the answer and the recipe, with the seconds that they
// gain or cost.
std::vector<std::string> departures(const Layout& recipe, const Price& recipe_price,
                                    const Layout& answer, const Price& answer_price);

}  // namespace trireme::plan
