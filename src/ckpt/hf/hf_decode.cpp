// SPDX-License-Identifier: Apache-2.0
#include "ckpt/hf/hf_decode.h"

#include <sys/mman.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "ckpt/disk/disk.h"

namespace trireme::ckpt {
namespace {

// Decodes IEEE half precision: 5 bits of exponent, 10 of fraction.
float from_half(uint16_t bits) {
  const int exponent = (bits >> 10) & 0x1f;
  const int fraction = bits & 0x3ff;
  const float sign = (bits & 0x8000) != 0 ? -1.0F : 1.0F;
  if (exponent == 0x1f) return fraction == 0 ? sign * INFINITY : NAN;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(fraction), -24);
  return sign * std::ldexp(static_cast<float>(fraction + 0x400), exponent - 25);
}

template <typename Element, typename Convert>
void decode_as(const SafetensorsView& view, int64_t first, std::span<float> values,
               Convert convert) {
  const size_t begin = static_cast<size_t>(first) * sizeof(Element);
  TRIREME_CHECK(begin + values.size() * sizeof(Element) <= view.bytes.size(),
                "{} elements from {} on of {} bytes", values.size(), first, view.bytes.size());
  const std::byte* from = view.bytes.data() + begin;
  for (float& value : values) {
    Element element;
    std::memcpy(&element, from, sizeof(Element));
    value = convert(element);
    from += sizeof(Element);
  }
}

}  // namespace

bool is_readable(std::string_view dtype) {
  return dtype == "F32" || dtype == "BF16" || dtype == "F16" || dtype == "F64";
}

void decode(const SafetensorsView& view, int64_t first, std::span<float> values) {
  if (view.dtype == "F32") {
    decode_as<float>(view, first, values, [](float value) { return value; });
  } else if (view.dtype == "F64") {
    decode_as<double>(view, first, values, [](double value) { return static_cast<float>(value); });
  } else if (view.dtype == "F16") {
    decode_as<uint16_t>(view, first, values, from_half);
  } else {
    decode_as<uint16_t>(view, first, values, [](uint16_t bits) {
      return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
    });
  }
}

void drop_pages(std::span<const std::byte> bytes) {
  const auto begin = (reinterpret_cast<uintptr_t>(bytes.data()) + page_bytes - 1) / page_bytes;
  const auto end = reinterpret_cast<uintptr_t>(bytes.data() + bytes.size()) / page_bytes;
  if (begin >= end) return;
  // This is advice: a failure costs memory and nothing else.
  (void)::madvise(reinterpret_cast<void*>(begin * page_bytes), (end - begin) * page_bytes,
                  MADV_DONTNEED);
}

}  // namespace trireme::ckpt
