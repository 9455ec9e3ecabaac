// SPDX-License-Identifier: Apache-2.0
// What a data set holds, as numbers that change with it: a run records them, and a resumed run
// compares.
#pragma once

#include <cstdint>
#include <string>

#include "data/files/token_data.h"

namespace trireme::data {

// Place, file format and token type do not count: a moved or converted data set has the same.
struct ContentId {
  int64_t tokens = 0, documents = 0;
  // XXH3-128 of token ids and of document starts, in hexadecimal. Of more than max_hashed tokens
  // (or documents), blocks that are spread evenly over the stream and make up that many are hashed.
  std::string token_hash, document_hash;
  bool operator==(const ContentId&) const = default;
};

constexpr int64_t max_hashed = int64_t{1} << 27;

// Throws IoError if a token cannot be read.
ContentId content_id(const TokenData&);

}  // namespace trireme::data
