// SPDX-License-Identifier: Apache-2.0
// What two generations do not have in common, whatever layouts saved them.
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
  // Of `values`: how many elements differ, by how much at most (infinity where one is not a
  // number), and the first one.
  int64_t elements = 0;
  double largest = 0;
  std::vector<int64_t> place;
  double first = 0, second = 0;
};

// Objects are compared key by key, "clipping.applied"; null where a side has no such key.
struct KeyDifference {
  std::string key;
  base::Json first, second;
};

struct Differences {
  int64_t tensors = 0;  // compared
  std::vector<TensorDifference> unlike;
  std::vector<KeyDifference> state, plan;
  // The plan does not count: it says how the bytes are spread, not what they are.
  bool are_equal() const { return unlike.empty() && state.empty(); }
};

struct DifferenceOptions {
  // Elements that differ by at most this are equal; 0: equal bits are wanted.
  double tolerance = 0;
  std::function<void(int64_t bytes_done, const std::string& name)> progress;
};

// Tensor by tensor; memory: two windows. Throws as Generation::read().
Differences difference(const Generation& first, const Generation& second,
                       const DifferenceOptions& = {});

std::vector<KeyDifference> difference(const base::Json& first, const base::Json& second);

}  // namespace trireme::ckpt
