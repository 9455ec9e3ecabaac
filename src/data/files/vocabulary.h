// SPDX-License-Identifier: Apache-2.0
// Checks whether a data set fits a vocabulary.
#pragma once

#include <cstdint>

#include "data/files/token_data.h"

namespace trireme::data {

// Reads every token and throws IoError at the first one that is not below `vocab`, with its
// position and document. `progress` may be empty.
void check_vocabulary(const TokenData&, int64_t vocab, const ScanProgress& progress);

// The same for tokens that were read from [begin, begin + tokens.size()).
void check_vocabulary(const TokenData&, int64_t vocab, int64_t begin,
                      std::span<const int32_t> tokens);

}  // namespace trireme::data
