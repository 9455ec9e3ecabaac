// SPDX-License-Identifier: Apache-2.0
// Strings of JSON, byte by byte.
#pragma once

#include <cstdint>
#include <string>

namespace trireme::data {

// Returns the first of '"', '\\' and control characters in [at, end), or `end`. Eight bytes at a
// time.
const char* string_special(const char* at, const char* end);

// Appends a code point. REQUIRES: below 0x110000 and no surrogate.
void append_utf8(std::string& out, uint32_t code);

}  // namespace trireme::data
