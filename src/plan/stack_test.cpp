// SPDX-License-Identifier: Apache-2.0
#include "plan/stack.h"

#include <gtest/gtest.h>

#include "plan/samples_test.h"

namespace trireme::plan {
namespace {

// The program plans for its own engine without any file; the file is there to be copied.
TEST(StackTest, the_file_of_this_program_holds_its_constants) {
  Stack file = shipped_stack("trireme");
  file.sources.clear();
  EXPECT_TRUE(file == trireme_stack());
}

}  // namespace
}  // namespace trireme::plan
