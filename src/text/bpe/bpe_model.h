// SPDX-License-Identifier: Apache-2.0
// BpeModel: the model of a tokenizer.json. It turns a piece of text into ids: its characters become
// symbols, pairs of symbols merge. A byte-level model takes the bytes of the piece instead, without
// the detour over the alphabet that stands for bytes (byte_alphabet.h).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/bpe/merge_word.h"
#include "text/bpe/pair_table.h"
#include "text/bpe/piece_cache.h"

namespace trireme::text {

struct BpeOptions {
  std::optional<std::string> unk_token;
  bool fuse_unk = false;
  bool byte_fallback = false;
  bool ignore_merges = false;  // a piece that is a token becomes that token
};

// What a thread needs to encode. One thread at a time.
struct BpeWorkspace {
  PieceCache cache;
  MergeScratch scratch;
  std::vector<int32_t> symbols;
  std::vector<uint32_t> offsets;  // of the symbols in the piece
};

class BpeModel {
 public:
  using Vocabulary = std::unordered_map<std::string, int32_t>;
  struct MergeRule {
    std::string left;
    std::string right;
  };

  // Throws ConfigError if a merge or the unknown token is not in the vocabulary. REQUIRES: ids >= 0
  // and different.
  BpeModel(Vocabulary vocabulary, const std::vector<MergeRule>& merges, BpeOptions options);

  // Appends the ids of a piece that is text. REQUIRES: valid UTF-8.
  void encode_text(std::string_view piece, BpeWorkspace& workspace,
                   std::vector<int32_t>& ids) const;
  // Appends the ids of a piece whose bytes stand for themselves. REQUIRES: has_all_bytes().
  void encode_bytes(std::string_view piece, BpeWorkspace& workspace,
                    std::vector<int32_t>& ids) const;
  // Does the vocabulary have a token for every byte?
  bool has_all_bytes() const { return has_all_bytes_; }

  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  size_t add_symbols(std::string_view piece, BpeWorkspace& workspace) const;
  int32_t id_of_char(char32_t c) const;
  void merge_into(std::string_view piece, bool is_cacheable, BpeWorkspace& workspace, size_t begin,
                  size_t end, std::vector<int32_t>& ids) const;
  void index_characters();
  // `ids` are those of the left and right tokens of the merges.
  void index_boundaries(const std::vector<MergeRule>& merges,
                        const std::vector<std::pair<int32_t, int32_t>>& ids);

  Vocabulary vocabulary_;
  BpeOptions options_;
  PairTable merges_;
  std::array<int32_t, 256> byte_ids_{};      // of the characters that stand for bytes
  std::array<int32_t, 256> fallback_ids_{};  // of <0x00> and so on; -1: none
  bool has_all_bytes_ = false;
  int32_t unk_id_ = -1;
  std::vector<int32_t> low_chars_;  // ids of tokens of one character below U+3000
  std::unordered_map<char32_t, int32_t> high_chars_;
  // Pairs of first symbols between which a merge is possible at all: text can be cut between two
  // others, and the parts encoded and cached each on its own.
  PairTable boundaries_;
  std::unordered_map<std::string, int32_t> byte_tokens_;  // by the bytes they stand for
};

}  // namespace trireme::text
