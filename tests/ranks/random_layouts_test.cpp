// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/ranks/ranks_rig.h"

namespace trireme::tests {
namespace {

TEST(RandomLayouts, use_memory_and_send_bytes_as_predicted) {
  train_random_layouts(31, 200, false);
}

TEST(RandomLayouts, of_experts_use_memory_and_send_bytes_as_predicted) {
  train_random_experts(37, 100, false);
}

}  // namespace
}  // namespace trireme::tests
