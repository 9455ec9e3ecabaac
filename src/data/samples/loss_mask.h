// SPDX-License-Identifier: Apache-2.0
// Which tokens of a data set are learned: the tokens of a prompt are read but not predicted.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace trireme::data {

// One flag for each token of a data set. Any thread may call.
class LossMask {
 public:
  virtual ~LossMask() = default;

  virtual int64_t tokens() const = 0;
  // Reads the flags of tokens [begin, begin + out.size()): not 0 if the token is learned, 0 if it
  // belongs to a prompt. REQUIRES: the range is in the data set.
  virtual void read(int64_t begin, std::span<uint8_t> out) const = 0;
};

std::unique_ptr<LossMask> loss_mask_in_memory(std::vector<uint8_t> flags);

// Sets labels[i] to -1 if token first_label + i, which is the label, is not learned.
void apply_loss_mask(const LossMask&, int64_t first_label, std::span<int32_t> labels);

}  // namespace trireme::data
