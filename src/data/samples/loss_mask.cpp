// SPDX-License-Identifier: Apache-2.0
#include "data/samples/loss_mask.h"

#include <algorithm>

#include "base/check.h"

namespace trireme::data {
namespace {

class LossMaskInMemory final : public LossMask {
 public:
  explicit LossMaskInMemory(std::vector<uint8_t> flags) : flags_(std::move(flags)) {}

  int64_t tokens() const override { return static_cast<int64_t>(flags_.size()); }
  void read(int64_t begin, std::span<uint8_t> out) const override {
    const auto size = static_cast<int64_t>(out.size());
    TRIREME_CHECK(begin >= 0 && size <= tokens() - begin, "flags {} .. {} of {}", begin,
                  begin + size, tokens());
    std::copy_n(flags_.begin() + begin, size, out.begin());
  }

 private:
  std::vector<uint8_t> flags_;
};

}  // namespace

std::unique_ptr<LossMask> loss_mask_in_memory(std::vector<uint8_t> flags) {
  return std::make_unique<LossMaskInMemory>(std::move(flags));
}

void apply_loss_mask(const LossMask& mask, int64_t first_label, std::span<int32_t> labels) {
  // Thread-local scratch, so that a sample allocates nothing once it has grown.
  thread_local std::vector<uint8_t> flags;
  flags.resize(labels.size());
  mask.read(first_label, flags);
  for (size_t i = 0; i < labels.size(); ++i) {
    if (flags[i] == 0) labels[i] = -1;
  }
}

}  // namespace trireme::data
