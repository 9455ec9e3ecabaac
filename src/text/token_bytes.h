// SPDX-License-Identifier: Apache-2.0
// The bytes of text that each token stands for, from which a loss per token becomes bits per byte.
#pragma once

#include <cstdint>
#include <vector>

#include "text/tokenizer.h"

namespace trireme::text {

// Returns the bytes by id; 0 for special tokens and for ids without a token. A token that has only
// a part of a code point counts the bytes that it has.
std::vector<int32_t> token_bytes(const Tokenizer&);

}  // namespace trireme::text
