// SPDX-License-Identifier: Apache-2.0
// Translates a regular expression from Oniguruma's syntax to PCRE2's. Classes are written out as
// ranges of code points, since the two libraries have tables of different versions of Unicode.
#pragma once

#include <string>
#include <string_view>

namespace trireme::text {

// Throws ConfigError with the construct if it is malformed, or means something else in PCRE2 and is
// not translated.
std::string pcre2_pattern(std::string_view oniguruma);

}  // namespace trireme::text
