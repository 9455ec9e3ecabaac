// SPDX-License-Identifier: Apache-2.0
// Prints conversions for float8_check.py, which compares them with PyTorch's. Output is binary, in
// the byte order of the machine.
//
//   float8_codes FORMAT FIRST COUNT STRIDE   codes of the fp32 values with the bits FIRST + i
//   STRIDE float8_codes FORMAT values               fp32 values of all codes
//
// FORMAT is e4m3, e5m2 or f16.
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "base/float16.h"
#include "base/float8.h"

namespace {

using namespace trireme::base;

template <typename T>
bool put(const std::vector<T>& values) {
  return std::fwrite(values.data(), sizeof(T), values.size(), stdout) == values.size();
}

template <typename Float>
bool put_values() {
  std::vector<float> values;
  for (uint32_t code = 0; code < 1U << (8 * sizeof(Float)); ++code) {
    Float converted;
    converted.bits = static_cast<decltype(converted.bits)>(code);
    values.push_back(static_cast<float>(converted));
  }
  return put(values);
}

template <typename Float>
bool put_codes(uint64_t first, uint64_t count, uint64_t stride) {
  constexpr uint64_t block = 1 << 20;
  std::vector<Float> codes;
  for (uint64_t begin = 0; begin < count; begin += block) {
    codes.resize(std::min(block, count - begin));
    for (uint64_t i = 0; i < codes.size(); ++i) {
      const auto bits = static_cast<uint32_t>(first + (begin + i) * stride);
      codes[i] = Float(std::bit_cast<float>(bits));
    }
    if (!put(codes)) return false;
  }
  return true;
}

template <typename Float>
bool answer(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[2]) == "values") return put_values<Float>();
  if (argc != 5) return false;
  const auto number = [&](int i) { return std::strtoull(argv[i], nullptr, 10); };
  return put_codes<Float>(number(2), number(3), number(4));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view format = argc > 1 ? argv[1] : "";
  const bool is_done = format == "e4m3"   ? answer<E4m3>(argc, argv)
                       : format == "e5m2" ? answer<E5m2>(argc, argv)
                       : format == "f16"  ? answer<F16>(argc, argv)
                                          : false;
  if (is_done) return 0;
  std::fputs("float8_codes: e4m3, e5m2 or f16, then FIRST COUNT STRIDE or 'values'\n", stderr);
  return 1;
}
