// SPDX-License-Identifier: Apache-2.0
#include "base/dtype.h"

#include <array>

#include "base/check.h"
#include "base/error.h"

namespace trireme::base {
namespace {

struct Row {
  DType dtype;
  std::string_view name;
  int64_t bytes;
};

constexpr std::array<Row, 10> rows = {{{DType::f32, "f32", 4},
                                       {DType::bf16, "bf16", 2},
                                       {DType::f8e4m3, "f8e4m3", 1},
                                       {DType::f8e5m2, "f8e5m2", 1},
                                       {DType::f64, "f64", 8},
                                       {DType::i32, "i32", 4},
                                       {DType::i64, "i64", 8},
                                       {DType::u8, "u8", 1},
                                       {DType::u16, "u16", 2},
                                       {DType::f16, "f16", 2}}};

const Row& row_of(DType dtype) {
  const auto index = static_cast<size_t>(dtype);
  TRIREME_CHECK(index < rows.size(), "dtype {}", index);
  return rows[index];
}

}  // namespace

int64_t size_of(DType dtype) { return row_of(dtype).bytes; }

std::string_view name_of(DType dtype) { return row_of(dtype).name; }

DType dtype_from_name(std::string_view name) {
  for (const Row& row : rows) {
    if (row.name == name) return row.dtype;
  }
  throw ConfigError(
      fmt::format("'{}' is not an element type; allowed are f32, bf16, f8e4m3, f8e5m2, f64, i32, "
                  "i64, u8, u16, f16",
                  name));
}

}  // namespace trireme::base
