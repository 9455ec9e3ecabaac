// SPDX-License-Identifier: Apache-2.0
#include "ckpt/generation/figures.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/float16.h"
#include "ckpt/disk/aligned.h"
#include "ckpt/generation/windows.h"

namespace trireme::ckpt {
namespace {

template <typename T>
T element(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

}  // namespace

std::optional<double> number_at(base::DType dtype, const std::byte* at) {
  switch (dtype) {
    case base::DType::f32:
      return element<float>(at);
    case base::DType::f64:
      return element<double>(at);
    case base::DType::i32:
      return element<int32_t>(at);
    case base::DType::i64:
      return static_cast<double>(element<int64_t>(at));
    case base::DType::u8:
      return element<uint8_t>(at);
    case base::DType::u16:
      return element<uint16_t>(at);
    case base::DType::bf16: {
      base::Bf16 value;
      value.bits = element<uint16_t>(at);
      return static_cast<float>(value);
    }
    case base::DType::f16: {
      base::F16 value;
      value.bits = element<uint16_t>(at);
      return static_cast<float>(value);
    }
    default:
      return {};
  }
}

TensorFigures figures_of(const Generation& generation, const TensorInfo& tensor) {
  TensorFigures figures{.hash = {}, .elements = elements_of(tensor)};
  const int64_t element_bytes = base::size_of(tensor.dtype);
  AlignedBytes memory;
  Hasher hasher;
  int64_t finite = 0;
  double sum = 0, squares = 0;
  for_each_window(tensor, [&](spec::Range range) {
    const auto bytes = memory.of((range.end - range.begin) * element_bytes);
    read_flat(generation, tensor, range.begin, bytes);
    hasher.add(bytes);
    for (int64_t at = 0; at < std::ssize(bytes); at += element_bytes) {
      const std::optional<double> value = number_at(tensor.dtype, bytes.data() + at);
      if (!value) return;
      if (!std::isfinite(*value)) {
        ++figures.not_finite;
        continue;
      }
      figures.min = finite == 0 ? *value : std::min(figures.min, *value);
      figures.max = finite == 0 ? *value : std::max(figures.max, *value);
      ++finite;
      sum += *value;
      squares += *value * *value;
    }
  });
  figures.hash = hasher.hash();
  if (finite > 0) {
    figures.mean = sum / static_cast<double>(finite);
    figures.rms = std::sqrt(squares / static_cast<double>(finite));
  }
  return figures;
}

}  // namespace trireme::ckpt
