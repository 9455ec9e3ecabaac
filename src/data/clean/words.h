// SPDX-License-Identifier: Apache-2.0
// Texts as words and in normalized form: what duplicates and repetition are measured on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::data {

// Replaces `words` by the words of a text: what white space separates. Every code point of a script
// that is written without spaces (Chinese, Japanese, Thai, Lao, Khmer, Burmese) is a word by
// itself, so that such texts have words, too. All other texts have the words of Python's
// str.split(). Views are into `text`. REQUIRES: valid UTF-8.
void split_words(std::string_view text, std::vector<std::string_view>& words);

// Replaces `out` by the text in lower case with every run of white space as one space, without
// white space at its ends. REQUIRES: valid UTF-8.
void normalize(std::string_view text, std::string& out);

// Returns the number of code points. REQUIRES: valid UTF-8.
int64_t code_points(std::string_view text);

// Returns the longest prefix of at most `max_bytes` bytes that ends between two code points.
std::string_view text_prefix(std::string_view text, size_t max_bytes);

}  // namespace trireme::data
