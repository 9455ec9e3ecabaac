// SPDX-License-Identifier: Apache-2.0
#include "data/mask.h"

#include <fmt/core.h>

#include <system_error>

#include "base/error.h"

namespace trireme::data {

std::unique_ptr<TokenData> open_mask(const std::filesystem::path& path, const TokenData& data) {
  std::filesystem::path mask_path = path;
  if (mask_path.extension() == ".bin" || mask_path.extension() == ".idx") {
    mask_path.replace_extension();
  }
  mask_path += ".mask.bin";
  std::error_code ignored;
  if (!std::filesystem::exists(mask_path, ignored)) return nullptr;
  auto mask = open_tokens(mask_path, {.format = TokenFormat::megatron});
  if (mask->type() != TokenType::u8 || mask->tokens() != data.tokens()) {
    throw base::IoError(fmt::format(
        "{}: holds {} numbers of {}; allowed: one u8 for each of the {} "
        "tokens of {}",
        mask_path.string(), mask->tokens(), name_of(mask->type()), data.tokens(), data.name()));
  }
  if (data.format() == TokenFormat::megatron &&
      mask->documents().count() != data.documents().count()) {
    throw base::IoError(fmt::format("{}: has {} documents; {} has {}", mask_path.string(),
                                    mask->documents().count(), data.name(),
                                    data.documents().count()));
  }
  return mask;
}

}  // namespace trireme::data
