// SPDX-License-Identifier: Apache-2.0
#include "config/numbers/decimal.h"

#include <charconv>

#include "base/check.h"

namespace trireme::config {

double decimal(float value) {
  char text[32];
  const auto written = std::to_chars(text, text + sizeof(text), value);
  double result = 0;
  const auto read = std::from_chars(text, written.ptr, result);
  TRIREME_CHECK(read.ec == std::errc() && static_cast<float>(result) == value, "{}", value);
  return result;
}

}  // namespace trireme::config
