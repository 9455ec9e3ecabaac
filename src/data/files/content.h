// SPDX-License-Identifier: Apache-2.0
// A fingerprint of a data set's content: a run records it, and a resumed run compares it.
#pragma once

#include <cstdint>
#include <string>

#include "data/files/token_data.h"

namespace trireme::data {

// Independent of location, file format and token type: a moved or converted data set has the same.
struct ContentId {
  int64_t tokens = 0, documents = 0;
  // XXH3-128 of token ids and of document starts, in hexadecimal. Above max_hashed tokens (or
  // documents), evenly spaced blocks of that total size are hashed.
  std::string token_hash, document_hash;
  bool operator==(const ContentId&) const = default;
};

constexpr int64_t max_hashed = int64_t{1} << 27;

// Throws IoError if a token cannot be read.
ContentId content_id(const TokenData&);

}  // namespace trireme::data
