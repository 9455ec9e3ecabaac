// SPDX-License-Identifier: Apache-2.0
#include "plan/stack.h"

#include <gtest/gtest.h>

#include "plan/samples_test.h"
#include "spec/layout/layout_text.h"

namespace trireme::plan {
namespace {

// The program plans for its own engine without any file; the file serves as a template.
TEST(StackTest, the_file_of_this_program_holds_its_constants) {
  Stack file = shipped_stack("trireme");
  file.sources.clear();
  EXPECT_TRUE(file == trireme_stack());
}

// TorchTitan recomputes keys, attention's output and one half of the gated feed-forward.
TEST(StackTest, every_second_product_is_recomputed) {
  const Job job = job_of("llama3.1-8b", 8, 8192);
  const spec::Machine machine = shipped_machine("h100");
  const Stack stack = shipped_stack("torchtitan");
  const auto priced = [&](const std::string& text) {
    return Pricer(job, machine, stack).price(layout_from_text(text, 8));
  };
  const Price none = priced("zero=3 micro=1"), some = priced("zero=3 micro=1 selective"),
              full = priced("zero=3 micro=1 full");
  const double width = 4096, key = 1024, ffn = 14336;
  const double redone = 2 * width * (key + width + ffn) * 32 * static_cast<double>(job.tokens());
  EXPECT_NEAR(some.hardware_flops - some.model_flops, redone, 1e-6 * redone);
  EXPECT_EQ(none.at(Term::recompute), 0);
  EXPECT_GT(some.at(Term::recompute), 0);
  EXPECT_LT(some.at(Term::recompute), 0.6 * full.at(Term::recompute));
}

}  // namespace
}  // namespace trireme::plan
