// SPDX-License-Identifier: Apache-2.0
// Loss masks: PREFIX.mask.bin and .idx beside a data set, a Megatron pair of u8 with one number per
// token: 1 if the token is predicted (the loss is taken where it is the label), 0 if not.
#pragma once

#include <filesystem>
#include <memory>

#include "data/files/token_data.h"

namespace trireme::data {

// Opens the mask of the data set `data`, which was opened from `path`. Returns null if there is
// none. Throws IoError if it is not u8 or has another number of tokens or, for a data set with an
// index, of documents.
std::unique_ptr<TokenData> open_mask(const std::filesystem::path& path, const TokenData& data);

}  // namespace trireme::data
