// SPDX-License-Identifier: Apache-2.0
// Writes a Megatron index from a table of document lengths.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "data/files/token_array.h"

namespace trireme::data {

struct DocumentLengths {
  std::span<const std::byte> lengths;                    // i64 per document, in tokens
  TokenType type = TokenType::u16;                       // of the tokens
  int64_t max_sequence_tokens = (int64_t{1} << 31) - 1;  // longer documents are several sequences
};

// The file appears complete or not at all, in constant memory. Throws IoError.
void write_megatron_index(const std::filesystem::path& path, const DocumentLengths&);

}  // namespace trireme::data
