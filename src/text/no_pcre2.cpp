// SPDX-License-Identifier: Apache-2.0
// Takes the place of pcre2/ in a build without PCRE2. The well-known expressions of GPT-2, Llama 3
// and Qwen2.5 do not need it (pipeline/known_patterns.h).
#include "base/error.h"
#include "text/regex.h"

namespace trireme::text {

struct Regex::Impl {};

Regex::Regex(const std::string& oniguruma_pattern) {
  throw base::ConfigError("the regular expression '" + oniguruma_pattern +
                          "' needs PCRE2, and this build is without it: install libpcre2-dev and "
                          "configure again");
}

Regex::~Regex() = default;

void Regex::find_all(std::string_view /*text*/, std::vector<Span>& /*matches*/) const {}

bool has_regex() { return false; }

}  // namespace trireme::text
