// SPDX-License-Identifier: Apache-2.0
// AddedTokens: tokens that are looked for in the text itself, before it is split into pieces. As in
// Hugging Face `tokenizers`: the leftmost match wins, and the longest among those.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme::text {

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool single_word = false;  // matches only if no word character stands beside it
  bool lstrip = false;       // takes the white space on its left
  bool rstrip = false;       // takes the white space on its right
  bool normalized = false;   // is looked for in normalized text, not in the raw text
  bool special = false;      // is left out of decoded text on request
};

class AddedTokenMatcher {
 public:
  struct Match {
    const AddedToken* token;
    size_t begin;  // white space that the token takes is included
    size_t end;
  };

  // Looks for `pattern` as the token. An equal pattern that was added before wins. The token must
  // outlive the matcher.
  void add(std::string_view pattern, const AddedToken& token);
  bool is_empty() const { return nodes_.size() == 1; }

  // Appends matches from left to right. REQUIRES: valid UTF-8.
  void find(std::string_view text, std::vector<Match>& matches) const;

 private:
  struct Node {
    std::vector<std::pair<unsigned char, uint32_t>> next;
    const AddedToken* token = nullptr;
  };
  uint32_t child(uint32_t node, unsigned char byte) const;  // 0: none

  std::vector<Node> nodes_ = {Node{}};
  std::array<bool, 256> is_first_{};
};

}  // namespace trireme::text
