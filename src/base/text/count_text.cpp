// SPDX-License-Identifier: Apache-2.0
#include "base/text/count_text.h"

#include <fmt/format.h>

namespace trireme::base {

std::string count_text(int64_t count, std::string_view one, std::string_view several) {
  if (count == 1) return fmt::format("1 {}", one);
  return several.empty() ? fmt::format("{} {}s", count, one) : fmt::format("{} {}", count, several);
}

}  // namespace trireme::base
