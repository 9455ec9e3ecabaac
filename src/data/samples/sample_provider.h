// SPDX-License-Identifier: Apache-2.0
// The interface between samples and batches: any object that fills the sample of a position, as a
// pure function of the position.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace trireme::data {

// One sample of seq_len tokens; the label of a token is the next one, or one of
// base/token_label.h (no loss).
struct SampleOut {
  std::span<int32_t> tokens, labels, positions;  // [seq_len]
};

// Any thread may call.
class SampleProvider {
 public:
  virtual ~SampleProvider() = default;

  // Returns the samples of one epoch; a mixture returns the samples of the run.
  virtual int64_t samples() const = 0;
  virtual int64_t seq_len() const = 0;

  // Fills all of `out`; `borders` receives the starts of documents inside the sample, ascending, in
  // [1, seq_len); it stays empty without document masks. Throws IoError if a token cannot be read
  // or is not in the vocabulary. REQUIRES: position >= 0, every span of `out` has seq_len elements.
  void sample(int64_t position, const SampleOut& out, std::vector<int32_t>& borders) const;

 private:
  virtual void fill_sample(int64_t position, const SampleOut& out,
                           std::vector<int32_t>& borders) const = 0;
};

}  // namespace trireme::data
