// SPDX-License-Identifier: Apache-2.0
#include "text/bpe/bpe_model.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "text/bpe/byte_alphabet.h"
#include "text/unicode/utf8.h"

namespace trireme::text {

namespace {

constexpr char32_t low_chars = 0x3000;

int32_t id_in(const BpeModel::Vocabulary& vocabulary, const std::string& token) {
  const auto found = vocabulary.find(token);
  return found == vocabulary.end() ? -1 : found->second;
}

// The code point that is the whole token, if it is one.
std::optional<char32_t> single_char(std::string_view token) {
  if (token.empty()) return std::nullopt;
  const CodePoint point = code_point_at(token.data());
  if (point.bytes != token.size()) return std::nullopt;
  return point.value;
}

}  // namespace

BpeModel::BpeModel(Vocabulary vocabulary, const std::vector<MergeRule>& merges, BpeOptions options)
    : vocabulary_(std::move(vocabulary)), options_(std::move(options)), merges_(merges.size()) {
  uint32_t rank = 0;
  std::vector<std::pair<int32_t, int32_t>> ids;
  ids.reserve(merges.size());
  for (const MergeRule& merge : merges) {
    const auto id_of = [&](const std::string& token) {
      const int32_t id = id_in(vocabulary_, token);
      if (id < 0) {
        throw base::ConfigError(
            fmt::format("merge {} ('{}' and '{}') needs '{}', which is not in "
                        "the vocabulary",
                        rank, merge.left, merge.right, token));
      }
      return id;
    };
    const int32_t left = id_of(merge.left), right = id_of(merge.right);
    merges_.set(left, right, {rank, id_of(merge.left + merge.right)});
    ids.emplace_back(left, right);
    ++rank;
  }
  if (options_.unk_token) {
    unk_id_ = id_in(vocabulary_, *options_.unk_token);
    if (unk_id_ < 0) {
      throw base::ConfigError(
          fmt::format("the unknown token '{}' is not in the vocabulary", *options_.unk_token));
    }
  }
  index_characters();
  index_boundaries(merges, ids);
}

void BpeModel::index_characters() {
  low_chars_.assign(low_chars, -1);
  for (const auto& [token, id] : vocabulary_) {
    if (const auto c = single_char(token)) {
      if (*c < low_chars) {
        low_chars_[*c] = id;
      } else {
        high_chars_[*c] = id;
      }
    }
    if (options_.ignore_merges) {
      if (auto bytes = bytes_of_token(token)) byte_tokens_[std::move(*bytes)] = id;
    }
  }
  has_all_bytes_ = true;
  for (size_t byte = 0; byte < 256; ++byte) {
    byte_ids_[byte] = id_of_char(byte_alphabet()[byte]);
    has_all_bytes_ = has_all_bytes_ && byte_ids_[byte] >= 0;
    fallback_ids_[byte] = id_in(vocabulary_, fmt::format("<0x{:02X}>", byte));
  }
}

void BpeModel::index_boundaries(const std::vector<MergeRule>& merges,
                                const std::vector<std::pair<int32_t, int32_t>>& ids) {
  std::vector<std::pair<int32_t, int32_t>> pairs;
  pairs.reserve(2 * merges.size());
  for (size_t i = 0; i < merges.size(); ++i) {
    const MergeRule& merge = merges[i];
    if (merge.left.empty() || merge.right.empty()) continue;
    const char* end = merge.left.data() + merge.left.size();
    const int32_t last = id_of_char(code_point_before(end).value);
    const int32_t first = id_of_char(code_point_at(merge.right.data()).value);
    // Tokens such as <unk> and <0x0A> can be symbols from the beginning, too.
    for (const int32_t left : {last, ids[i].first}) {
      for (const int32_t right : {first, ids[i].second}) {
        if (left >= 0 && right >= 0) pairs.emplace_back(left, right);
      }
    }
  }
  std::sort(pairs.begin(), pairs.end());
  pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
  boundaries_ = PairTable(pairs.size());
  for (const auto& [left, right] : pairs) boundaries_.set(left, right, {});
}

int32_t BpeModel::id_of_char(char32_t c) const {
  if (c < low_chars) return low_chars_[c];
  const auto found = high_chars_.find(c);
  return found == high_chars_.end() ? -1 : found->second;
}

void BpeModel::encode_bytes(std::string_view piece, BpeWorkspace& workspace,
                            std::vector<int32_t>& ids) const {
  if (piece.empty()) return;
  const bool is_short = piece.size() <= PieceCache::max_bytes;
  PieceCache::Entry* entry = is_short ? &workspace.cache.slot(piece) : nullptr;
  if (entry != nullptr && entry->holds(piece)) {
    ids.insert(ids.end(), entry->ids.begin(), entry->ids.begin() + entry->count);
    return;
  }
  auto& symbols = workspace.symbols;
  symbols.clear();
  const auto whole =
      options_.ignore_merges ? byte_tokens_.find(std::string(piece)) : byte_tokens_.end();
  if (whole != byte_tokens_.end()) {
    symbols.push_back(whole->second);
  } else {
    for (const char byte : piece) symbols.push_back(byte_ids_[static_cast<unsigned char>(byte)]);
    symbols.resize(merge_word(merges_, symbols, workspace.scratch));
  }
  if (entry != nullptr) PieceCache::fill(*entry, piece, symbols);
  ids.insert(ids.end(), symbols.begin(), symbols.end());
}

void BpeModel::encode_text(std::string_view piece, BpeWorkspace& workspace,
                           std::vector<int32_t>& ids) const {
  if (piece.empty()) return;
  TRIREME_CHECK(piece.size() < (size_t{1} << 31U), "a piece of {} bytes", piece.size());
  if (options_.ignore_merges) {
    const int32_t id = id_in(vocabulary_, std::string(piece));
    if (id >= 0) {
      ids.push_back(id);
      return;
    }
  }
  const size_t first_unknown = add_symbols(piece, workspace);
  // Parts between which nothing can merge.
  const auto& symbols = workspace.symbols;
  size_t begin = 0;
  for (size_t i = 1; i <= symbols.size(); ++i) {
    if (i < symbols.size() && boundaries_.find(symbols[i - 1], symbols[i]) != nullptr) continue;
    // Symbols from the first unknown character on do not spell the text that they stand for.
    const bool is_cacheable = first_unknown > i;
    merge_into(piece, is_cacheable, workspace, begin, i, ids);
    begin = i;
  }
}

// Fills symbols and offsets; returns the index of the first symbol that is not its character's own
// token, or a number above the number of symbols.
size_t BpeModel::add_symbols(std::string_view piece, BpeWorkspace& workspace) const {
  auto& symbols = workspace.symbols;
  auto& offsets = workspace.offsets;
  symbols.clear();
  offsets.clear();
  std::optional<size_t> first_unknown;
  bool has_pending_unk = false;
  const auto add = [&](int32_t id, size_t offset) {
    symbols.push_back(id);
    offsets.push_back(static_cast<uint32_t>(offset));
  };
  for (size_t i = 0; i < piece.size();) {
    const CodePoint point = code_point_at(piece.data() + i);
    const size_t at = i;
    i += point.bytes;
    const int32_t id = id_of_char(point.value);
    if (id >= 0) {
      if (has_pending_unk) add(unk_id_, at);
      has_pending_unk = false;
      add(id, at);
      continue;
    }
    if (!first_unknown) first_unknown = symbols.size();
    const auto bytes = piece.substr(at, point.bytes);
    const bool falls_back =
        options_.byte_fallback && std::all_of(bytes.begin(), bytes.end(), [&](char byte) {
          return fallback_ids_[static_cast<unsigned char>(byte)] >= 0;
        });
    if (falls_back) {
      // An unknown token that is pending stays behind these bytes, as in `tokenizers`.
      for (const char byte : bytes) add(fallback_ids_[static_cast<unsigned char>(byte)], at);
    } else if (unk_id_ >= 0) {
      if (has_pending_unk && !options_.fuse_unk) add(unk_id_, at);
      has_pending_unk = true;
    }
  }
  if (has_pending_unk) add(unk_id_, piece.size());
  offsets.push_back(static_cast<uint32_t>(piece.size()));
  return first_unknown.value_or(symbols.size() + 1);
}

void BpeModel::merge_into(std::string_view piece, bool is_cacheable, BpeWorkspace& workspace,
                          size_t begin, size_t end, std::vector<int32_t>& ids) const {
  const size_t first = workspace.offsets[begin];
  const std::string_view text = piece.substr(first, workspace.offsets[end] - first);
  const bool uses_cache = is_cacheable && end - begin > 1 && text.size() <= PieceCache::max_bytes;
  PieceCache::Entry* entry = uses_cache ? &workspace.cache.slot(text) : nullptr;
  if (entry != nullptr && entry->holds(text)) {
    ids.insert(ids.end(), entry->ids.begin(), entry->ids.begin() + entry->count);
    return;
  }
  const std::span<int32_t> symbols(workspace.symbols.data() + begin, end - begin);
  const size_t left = merge_word(merges_, symbols, workspace.scratch);
  if (entry != nullptr) PieceCache::fill(*entry, text, symbols.first(left));
  ids.insert(ids.end(), symbols.begin(), symbols.begin() + static_cast<std::ptrdiff_t>(left));
}

}  // namespace trireme::text
