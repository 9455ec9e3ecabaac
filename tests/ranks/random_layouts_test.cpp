// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/ranks/ranks_rig.h"

namespace trireme::tests {
namespace {

TEST(RandomLayouts, take_and_send_what_was_predicted) {
  constexpr int some = 12, many = 200;
  train_random_layouts(31, std::getenv("TRIREME_FULL") != nullptr ? many : some, false);
}

}  // namespace
}  // namespace trireme::tests
