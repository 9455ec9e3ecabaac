// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "data/files/layouts.h"
#include "memory_file.h"
#include "readers.h"
#include "walk_tokens.h"

namespace trireme::fuzz {
namespace {

bool parses_llmc(Input input) {
  try {
    const data::TokenArray tokens = data::parse_llmc(input, "input");
    TRIREME_CHECK(tokens.size() * data::size_of(tokens.type) +
                          static_cast<int64_t>(data::llmc_header_bytes) ==
                      static_cast<int64_t>(input.size()),
                  "{} tokens in {} bytes", tokens.size(), input.size());
  } catch (const base::Error&) {
    return false;  // refused
  }
  return true;
}

}  // namespace

// Detected by its magic number, as one document and as documents that end with token 0.
bool read_llmc(Input input) {
  static const MemoryFile file;
  const bool is_taken = parses_llmc(input);
  file.fill(input);
  for (const int32_t end_of_document : {-1, 0}) {
    bool is_opened = false;
    try {
      const auto tokens = data::open_tokens(file.path(), {.end_of_document = end_of_document});
      is_opened = true;
      walk_tokens(*tokens);
    } catch (const base::Error&) {
      // Refused, or it has an invalid token.
    }
    TRIREME_CHECK(is_opened == is_taken, "parsed: {}, opened: {}", is_taken, is_opened);
  }
  return is_taken;
}

}  // namespace trireme::fuzz
