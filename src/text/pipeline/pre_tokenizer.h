// SPDX-License-Identifier: Apache-2.0
// PreTokenizer: how a tokenizer.json splits text into the pieces that the model encodes one by one.
// Each kind does what the kind of the same name of Hugging Face `tokenizers` does.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/pipeline/pattern.h"

namespace trireme::text {

struct Piece {
  std::string_view text;
  bool is_at_start;  // begins where the whole input began
};

struct PieceList {
  std::vector<Piece> pieces;
  std::deque<std::string> changed;  // texts that are not views of the input
  std::vector<Span> spans;          // scratch
  std::vector<std::string_view> views;
};

enum class SplitBehavior : unsigned char {
  removed,
  isolated,
  merged_with_previous,
  merged_with_next,
  contiguous
};

enum class PrependScheme : unsigned char { always, first, never };

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  // Appends the pieces of `piece`, none of them empty. Thread-safe. REQUIRES: valid UTF-8.
  virtual void apply(const Piece& piece, PieceList& out) const = 0;
};

struct SplitOptions {
  SplitBehavior behavior = SplitBehavior::isolated;
  bool invert = false;
};
std::unique_ptr<PreTokenizer> split_pre_tokenizer(std::unique_ptr<Pattern> pattern,
                                                  SplitOptions options);

struct ByteLevelOptions {
  bool add_prefix_space = false;
  bool use_regex = true;
  bool writes_alphabet = true;  // false: pieces keep their bytes
};
std::unique_ptr<PreTokenizer> byte_level_pre_tokenizer(ByteLevelOptions options);

struct MetaspaceOptions {
  std::string replacement;  // one character
  PrependScheme scheme = PrependScheme::always;
  bool split = true;
};
std::unique_ptr<PreTokenizer> metaspace_pre_tokenizer(MetaspaceOptions options);
std::unique_ptr<PreTokenizer> sequence_pre_tokenizer(
    std::vector<std::unique_ptr<PreTokenizer>> parts);

}  // namespace trireme::text
