// SPDX-License-Identifier: Apache-2.0
// The differences between two checkpoints, independent of the layouts that saved them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/text/json.h"
#include "ckpt/generation/generation.h"

namespace trireme::ckpt {

enum class Unlike : uint8_t { only_first, only_second, type, shape, values };

struct TensorDifference {
  std::string name;
  Unlike what = Unlike::values;
  // For `values`: the number of elements that differ, the largest difference (infinity if one side
  // is not a number), and the first element that differs.
  int64_t elements = 0;
  double largest = 0;
  std::vector<int64_t> place;
  double first = 0, second = 0;
};

// Objects are compared key by key ("clipping.applied"); null if a side lacks the key.
struct KeyDifference {
  std::string key;
  base::Json first, second;
};

struct Differences {
  int64_t tensors = 0;  // compared
  std::vector<TensorDifference> unlike;
  std::vector<KeyDifference> state, plan;
  // The plan does not count: it describes how the bytes are distributed, not their values.
  bool are_equal() const { return unlike.empty() && state.empty(); }
};

struct DifferenceOptions {
  // Elements that differ by at most this are equal; 0 requires equal bits.
  double tolerance = 0;
  std::function<void(int64_t bytes_done, const std::string& name)> progress;
};

// Compares tensor by tensor in the memory of two windows. Throws as Generation::read() does.
Differences difference(const Generation& first, const Generation& second,
                       const DifferenceOptions& = {});

std::vector<KeyDifference> difference(const base::Json& first, const base::Json& second);

}  // namespace trireme::ckpt
