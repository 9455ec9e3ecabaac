// SPDX-License-Identifier: Apache-2.0
#include "data/samples/batch.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/check.h"
#include "base/error.h"

namespace trireme::data {

void fill_batch(const SampleProvider& sampler, std::span<const int64_t> positions, Batch& out) {
  const auto seq_len = static_cast<size_t>(sampler.seq_len());
  const size_t tokens = positions.size() * seq_len;
  TRIREME_CHECK(tokens < (size_t{1} << 31), "a batch of {} tokens", tokens);
  out.tokens.resize(tokens);
  out.labels.resize(tokens);
  out.positions.resize(tokens);
  out.seq_offsets.resize(tokens + 1);
  out.samples.assign(positions.begin(), positions.end());
  thread_local std::vector<int32_t> borders;
  size_t sequences = 0;
  for (size_t i = 0; i < positions.size(); ++i) {
    const size_t at = i * seq_len;
    sampler.sample(positions[i],
                   {.tokens = std::span(out.tokens).subspan(at, seq_len),
                    .labels = std::span(out.labels).subspan(at, seq_len),
                    .positions = std::span(out.positions).subspan(at, seq_len)},
                   borders);
    out.seq_offsets[sequences++] = static_cast<int32_t>(at);
    for (const int32_t border : borders) {
      out.seq_offsets[sequences++] = static_cast<int32_t>(at) + border;
    }
  }
  std::fill(out.seq_offsets.begin() + static_cast<std::ptrdiff_t>(sequences), out.seq_offsets.end(),
            static_cast<int32_t>(tokens));
}

void check_split(const BatchSplit& split) {
  if (split.global_batch < 1 || split.ranks < 1 || split.micro_batches < 1 || split.rank < 0 ||
      split.rank >= split.ranks) {
    throw base::ConfigError(fmt::format("global batch {}, rank {} of {}, {} micro-batches",
                                        split.global_batch, split.rank, split.ranks,
                                        split.micro_batches));
  }
  const int64_t parts = int64_t{split.ranks} * split.micro_batches;
  if (split.global_batch % parts != 0) {
    throw base::ConfigError(
        fmt::format("a global batch of {} samples does not divide by {} ranks x {} micro-batches",
                    split.global_batch, split.ranks, split.micro_batches));
  }
}

void batch_positions(const BatchSplit& split, int64_t step, int micro_batch,
                     std::vector<int64_t>& out) {
  TRIREME_CHECK(step >= 0 && micro_batch >= 0 && micro_batch < split.micro_batches,
                "step {}, micro-batch {} of {}", step, micro_batch, split.micro_batches);
  const int64_t samples = split.samples();
  out.resize(static_cast<size_t>(samples));
  for (int64_t i = 0; i < samples; ++i) {
    const int64_t of_rank = micro_batch * samples + i;
    out[static_cast<size_t>(i)] = step * split.global_batch + of_rank * split.ranks + split.rank;
  }
}

}  // namespace trireme::data
