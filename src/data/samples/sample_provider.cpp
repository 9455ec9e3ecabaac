// SPDX-License-Identifier: Apache-2.0
#include "data/samples/sample_provider.h"

#include "base/check.h"

namespace trireme::data {

void SampleProvider::sample(int64_t position, const SampleOut& out,
                            std::vector<int32_t>& borders) const {
  const auto length = static_cast<size_t>(seq_len());
  TRIREME_CHECK(position >= 0, "position {}", position);
  TRIREME_CHECK(
      out.tokens.size() == length && out.labels.size() == length && out.positions.size() == length,
      "{} tokens, {} labels, {} positions for a sample of {}", out.tokens.size(), out.labels.size(),
      out.positions.size(), length);
  borders.clear();
  fill_sample(position, out, borders);
}

}  // namespace trireme::data
