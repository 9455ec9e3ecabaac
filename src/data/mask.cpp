// SPDX-License-Identifier: Apache-2.0
#include "data/mask.h"

#include <fmt/core.h>

#include <algorithm>
#include <system_error>
#include <vector>

#include "base/error.h"

namespace trireme::data {
namespace {

class LossMaskInFile final : public LossMask {
 public:
  explicit LossMaskInFile(const TokenData& data) : data_(data) {}

  int64_t tokens() const override { return data_.tokens(); }
  void read(int64_t begin, std::span<uint8_t> out) const override {
    // Thread-local scratch, so that a sample allocates nothing once it has grown.
    thread_local std::vector<int32_t> flags;
    flags.resize(out.size());
    data_.read(begin, flags);
    std::transform(flags.begin(), flags.end(), out.begin(),
                   [](int32_t flag) { return static_cast<uint8_t>(flag != 0 ? 1 : 0); });
  }

 private:
  const TokenData& data_;
};

}  // namespace

std::unique_ptr<LossMask> loss_mask_of(const TokenData& mask) {
  return std::make_unique<LossMaskInFile>(mask);
}

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
