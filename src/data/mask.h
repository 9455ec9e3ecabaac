// SPDX-License-Identifier: Apache-2.0
// Loss masks: PREFIX.mask.bin and .idx beside a data set, a Megatron pair of u8 with one number per
// token: 1 if the token is predicted (the loss is taken where it is the label), 0 if not.
#pragma once

#include <filesystem>
#include <memory>

#include "data/files/token_data.h"
#include "data/samples/loss_mask.h"

namespace trireme::data {

// Opens the mask of the data set `data`, which was opened from `path`. Returns null if there is
// none. Throws IoError if it is not u8 or has another number of tokens or, for a data set with an
// index, of documents.
std::unique_ptr<TokenData> open_mask(const std::filesystem::path& path, const TokenData& data);

// Returns the mask for samplers. `mask`, which open_mask() returned, must outlive it.
std::unique_ptr<LossMask> loss_mask_of(const TokenData& mask);

}  // namespace trireme::data
