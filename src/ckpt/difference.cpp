// SPDX-License-Identifier: Apache-2.0
#include "ckpt/difference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "base/text/json.h"
#include "ckpt/disk/aligned.h"
#include "ckpt/generation/figures.h"
#include "ckpt/generation/windows.h"

namespace trireme::ckpt {
namespace {

struct Memory {
  AlignedBytes first, second;
};

std::vector<int64_t> place_of(int64_t flat, const std::vector<int64_t>& shape) {
  std::vector<int64_t> place(shape.size());
  for (size_t dim = shape.size(); dim-- > 0;) {
    place[dim] = flat % shape[dim];
    flat /= shape[dim];
  }
  return place;
}

// Adds the differences of one window; `begin` is its first element.
void add_unlike(std::span<const std::byte> a, std::span<const std::byte> b, const TensorInfo& info,
                int64_t begin, double tolerance, TensorDifference& found) {
  if (std::memcmp(a.data(), b.data(), a.size()) == 0) return;
  const auto bytes = static_cast<size_t>(base::size_of(info.dtype));
  for (size_t at = 0; at < a.size(); at += bytes) {
    if (std::memcmp(a.data() + at, b.data() + at, bytes) == 0) continue;
    const std::optional<double> first = number_at(info.dtype, a.data() + at);
    const std::optional<double> second = number_at(info.dtype, b.data() + at);
    double distance = first && second ? std::abs(*first - *second) : 0;
    if (std::isnan(distance)) distance = std::numeric_limits<double>::infinity();
    if (tolerance > 0 && first && distance <= tolerance) continue;
    if (found.elements++ == 0) {
      found.place = place_of(begin + static_cast<int64_t>(at / bytes), info.shape);
      found.first = first.value_or(0);
      found.second = second.value_or(0);
    }
    found.largest = std::max(found.largest, distance);
  }
}

void collect(const base::Json& first, const base::Json& second, const std::string& prefix,
             std::vector<KeyDifference>& found) {
  if (first == second) return;
  if (!first.is_object() || !second.is_object()) {
    found.push_back({prefix, first, second});
    return;
  }
  const auto below = [&prefix](const std::string& key) {
    return prefix.empty() ? key : prefix + "." + key;
  };
  for (const auto& [key, value] : first.items()) {
    collect(value, second.contains(key) ? second.at(key) : base::Json(), below(key), found);
  }
  for (const auto& [key, value] : second.items()) {
    if (!first.contains(key)) collect(base::Json(), value, below(key), found);
  }
}

}  // namespace

std::vector<KeyDifference> difference(const base::Json& first, const base::Json& second) {
  std::vector<KeyDifference> found;
  collect(first, second, "", found);
  return found;
}

Differences difference(const Generation& first, const Generation& second,
                       const DifferenceOptions& options) {
  Differences all;
  base::Json first_state = first.manifest().state, second_state = second.manifest().state;
  first_state["step"] = first.manifest().step;
  second_state["step"] = second.manifest().step;
  // The configuration of a run is not part of what it learned; like the plan, it does not count.
  base::Json first_plan = first.manifest().plan, second_plan = second.manifest().plan;
  for (const auto& [state, beside] :
       {std::pair(&first_state, &first_plan), std::pair(&second_state, &second_plan)}) {
    if (const auto config = state->find("config"); config != state->end()) {
      (*beside)["config"] = *config;
      state->erase(config);
    }
  }
  all.state = difference(first_state, second_state);
  all.plan = difference(first_plan, second_plan);

  std::map<std::string_view, const TensorInfo*> others;
  for (const TensorInfo& tensor : second.manifest().tensors) others[tensor.name] = &tensor;
  Memory memory;
  int64_t done = 0;
  for (const TensorInfo& tensor : first.manifest().tensors) {
    const auto other = others.find(tensor.name);
    TensorDifference found{.name = tensor.name};
    const bool is_there = other != others.end();
    if (!is_there) {
      found.what = Unlike::only_first;
    } else if (other->second->shape != tensor.shape) {
      found.what = Unlike::shape;
    } else if (other->second->dtype != tensor.dtype) {
      found.what = Unlike::type;
    } else {
      ++all.tensors;
      for_each_window(tensor, [&](spec::Range range) {
        const int64_t bytes = (range.end - range.begin) * base::size_of(tensor.dtype);
        const auto a = memory.first.of(bytes), b = memory.second.of(bytes);
        read_flat(first, tensor, range.begin, a);
        read_flat(second, tensor, range.begin, b);
        add_unlike(a, b, tensor, range.begin, options.tolerance, found);
        done += bytes;
        if (options.progress) options.progress(done, tensor.name);
      });
    }
    if (found.what != Unlike::values || found.elements > 0) all.unlike.push_back(std::move(found));
    if (is_there) others.erase(other);
  }
  for (const TensorInfo& tensor : second.manifest().tensors) {
    if (!others.contains(tensor.name)) continue;
    all.unlike.push_back({.name = tensor.name, .what = Unlike::only_second});
  }
  return all;
}

}  // namespace trireme::ckpt
