// SPDX-License-Identifier: Apache-2.0
// Shapes, tensor descriptions and the one function that turns a description into bytes.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "base/dtype.h"

namespace trireme::base {

// Up to four dimensions, by value. An empty shape (ndim 0) means "no tensor", not a scalar; a
// scalar is [1].
class Shape {
 public:
  static constexpr int max_ndim = 4;

  Shape() = default;
  Shape(std::initializer_list<int64_t> dims);

  int ndim() const { return ndim_; }
  int64_t operator[](int dim) const;
  int64_t elements() const;       // product of all dimensions; 0 for the empty shape
  int64_t row_elements() const;   // product of all but the first
  std::string to_string() const;  // "[2048, 12, 64]"

  bool operator==(const Shape&) const = default;

 private:
  std::array<int64_t, max_ndim> dims_{};
  int ndim_ = 0;
};

struct TensorSpec {
  Shape shape;
  DType dtype = DType::f32;
  bool operator==(const TensorSpec&) const = default;
};

// Every allocation and every tensor of an Arena starts on a multiple of this.
constexpr int64_t grain_bytes = 256;

constexpr int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Returns the memory of a tensor, rounded up to the grain. Planner and engine both call this.
int64_t bytes_of(const TensorSpec&);

}  // namespace trireme::base
