// SPDX-License-Identifier: Apache-2.0
#include "base/shape.h"

#include "base/check.h"

namespace trireme::base {

Shape::Shape(std::initializer_list<int64_t> dims) : ndim_(static_cast<int>(dims.size())) {
  TRIREME_CHECK(ndim_ <= max_ndim, "{} dimensions, at most {} are supported", ndim_, +max_ndim);
  size_t at = 0;
  for (const int64_t dim : dims) {
    TRIREME_CHECK(dim >= 0, "dimension {} is {}", at, dim);
    dims_[at++] = dim;
  }
}

int64_t Shape::operator[](int dim) const {
  TRIREME_CHECK(dim >= 0 && dim < ndim_, "dimension {} of {}", dim, to_string());
  return dims_[static_cast<size_t>(dim)];
}

int64_t Shape::elements() const { return ndim_ == 0 ? 0 : dims_[0] * row_elements(); }

int64_t Shape::row_elements() const {
  if (ndim_ == 0) return 0;
  int64_t product = 1;
  for (size_t dim = 1; dim < static_cast<size_t>(ndim_); ++dim) product *= dims_[dim];
  return product;
}

std::string Shape::to_string() const {
  std::string text = "[";
  for (int dim = 0; dim < ndim_; ++dim) {
    text += fmt::format("{}{}", dim == 0 ? "" : ", ", dims_[static_cast<size_t>(dim)]);
  }
  return text + "]";
}

int64_t bytes_of(const TensorSpec& spec) {
  return round_up(spec.shape.elements() * size_of(spec.dtype), grain_bytes);
}

}  // namespace trireme::base
