// SPDX-License-Identifier: Apache-2.0
#include "comm/register/register.h"

#include <fmt/format.h>

#include "base/error.h"

namespace trireme::comm {

Swapped Register::swap(int64_t expected_revision, const std::string& value,
                       const std::string& request_id) {
  if (value.size() >= max_register_bytes) {
    throw base::IoError(fmt::format("a value of {} bytes for the register; at most {} are allowed",
                                    value.size(), max_register_bytes - 1));
  }
  if (request_id.empty() || request_id.size() > max_request_id_bytes) {
    throw base::IoError(
        fmt::format("the id of a request to the register has {} bytes; 1 to {} are allowed",
                    request_id.size(), max_request_id_bytes));
  }
  return swap_checked(expected_revision, value, request_id);
}

}  // namespace trireme::comm
