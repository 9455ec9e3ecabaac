// SPDX-License-Identifier: Apache-2.0
// The byte layouts of token files, each in one place for reader and writer. The readers trust no
// input: what they return has been cross-checked, apart from the tokens themselves. Every IoError
// names the file, what was found and what is allowed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "data/files/token_array.h"

namespace trireme::data {

// Megatron's index (`.idx`), beside a `.bin` of bare tokens:
//   0 magic (9 bytes) | 9 u64 version 1 | 17 u8 type | 18 u64 S | 26 u64 D |
//   34 i32[S] tokens of each sequence | i64[S] its byte offset in .bin |
//   i64[D] first sequence of each document, and S at the end
inline constexpr std::string_view megatron_magic{"MMIDIDX\0\0", 9};
inline constexpr uint64_t megatron_version = 1;
inline constexpr size_t megatron_header_bytes = 34;
// Returns the code of a type in the index. REQUIRES: not u32, which has none.
uint8_t megatron_code(TokenType);

struct MegatronIndex {
  TokenType type = TokenType::u16;
  int64_t sequences = 0, documents = 0, tokens = 0;
  std::span<const std::byte> pointers;         // i64[sequences], unaligned
  std::span<const std::byte> first_sequences;  // i64[documents + 1], unaligned

  // Returns the first token of a document; document_start(documents) is `tokens`.
  int64_t document_start(int64_t document) const;
};

// `bytes` is the whole index, `bin_bytes` the size of the `.bin`. Sequences must be contiguous and
// fill the .bin; documents may be empty.
MegatronIndex parse_megatron_index(std::span<const std::byte> bytes, int64_t bin_bytes,
                                   std::string_view name);

// llm.c: 256 i32 (magic, version, number of tokens, zeros), then the tokens.
inline constexpr size_t llmc_header_bytes = 1024;
struct LlmcKind {
  int32_t magic, version;
  TokenType type;
};
inline constexpr std::array<LlmcKind, 2> llmc_kinds = {
    {{20240520, 1, TokenType::u16}, {20240801, 7, TokenType::u32}}};

// Returns true if the file starts with a magic number of any llm.c file.
bool has_llmc_magic(std::span<const std::byte> bytes);
// `bytes` is the whole file.
TokenArray parse_llmc(std::span<const std::byte> bytes, std::string_view name);

}  // namespace trireme::data
