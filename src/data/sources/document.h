// SPDX-License-Identifier: Apache-2.0
// A document as a source yields it, its place in the input, and the reasons to reject one.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace trireme::data {

// Where a document was found. `offset` counts bytes of the decompressed shard.
struct Origin {
  std::string file;
  int64_t line = 0;    // from 1; 0 in formats without lines
  std::string member;  // key of a tar sample, "sample 12" of an MDS shard; empty elsewhere
  int64_t offset = 0;  // of the line, the member or the sample
  bool operator==(const Origin&) const = default;
};

// "a.jsonl:3", "a.tar: 0001", "book.txt"
std::string to_text(const Origin&);

enum class RejectReason : uint8_t {
  invalid_utf8,
  empty,
  nul,                   // a byte 0 in the text
  end_of_document_byte,  // bytes as tokens: the text has the byte that ends documents
  too_long,
  wrong_field,  // missing, twice, or not a string
  json_error,
  invalid_token,  // an id outside of the vocabulary, from the encoder or a file of tokens
};
inline constexpr size_t reject_reasons = 8;
std::string_view name_of(RejectReason);  // "invalid_utf8"

struct Rejection {
  RejectReason reason = RejectReason::empty;
  std::string detail;  // what was found and what is allowed
  bool operator==(const Rejection&) const = default;
};

// Views are valid until the next call of the source that yielded them.
struct Document {
  std::string_view text;  // with a completion: the prompt
  std::optional<std::string_view> completion;
  std::span<const int32_t> tokens;  // instead of text, from files of tokens
  bool is_tokens = false;
  Origin origin;
  std::optional<Rejection> rejected;  // then there is no text and there are no tokens
};

}  // namespace trireme::data
