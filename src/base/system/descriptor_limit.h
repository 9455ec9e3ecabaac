// SPDX-License-Identifier: Apache-2.0
// The limit of open file descriptors of this process.
#pragma once

#include <cstdint>
#include <string>

namespace trireme::base {

// Raises the limit of open descriptors to the hard limit, at most to 2^20. Ranks that this process
// starts inherit it.
void raise_descriptor_limit();

// Throws ConfigError, with the numbers, unless this process may open `more` descriptors in addition
// to those that are open; `purpose` is the subject of the message.
void expect_descriptors(int64_t more, const std::string& purpose);

}  // namespace trireme::base
