// SPDX-License-Identifier: Apache-2.0
// Text inside of pages: escapes for HTML and for JSON in HTML, base64, hashes of a content security
// policy, and modules joined into one script.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace trireme::board {

// Escapes & < > " ' so that a text is shown and never interpreted.
std::string html_escaped(std::string_view text);

// JSON that may stand within <script>: < > & and the line separators U+2028 and U+2029 are escaped.
// REQUIRES: `json` is JSON, where these occur in strings only.
std::string json_in_html(std::string_view json);

// A script that may stand within <script>: it does not end the element.
std::string script_in_html(std::string_view script);

std::string base64_of(std::string_view bytes);
// "'sha256-...'", for script-src and style-src.
std::string policy_hash(std::string_view text);

// Joins ES modules into one, since a page that was opened from a file cannot import. `read` returns
// the text of "main.js" and the like. Every import stands on one line, `import ... from
// './name.js';`; top-level names are unique over all modules. Throws ConfigError if a module is
// missing or imports itself.
std::string joined_modules(const std::string& main,
                           const std::function<std::string(const std::string&)>& read);

}  // namespace trireme::board
