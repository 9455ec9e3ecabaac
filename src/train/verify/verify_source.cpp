// SPDX-License-Identifier: Apache-2.0
#include "train/verify/verify_source.h"

#include <algorithm>

#include "base/sha256.h"

namespace trireme::train {

VerifySource::VerifySource(const spec::Plan& plan, const spec::Coord& coord, int64_t vocab,
                           const int64_t& step)
    : plan_(plan),
      coord_(coord),
      vocab_(static_cast<uint64_t>(vocab)),
      step_(step),
      key_(base::rng_key(0, "verify")) {}

uint64_t VerifySource::first_sample(int index) const {
  const int64_t of_step = int64_t{plan_.layout.logical_dp} * spec::worker_microbatches(plan_);
  const int64_t number = step_ * of_step + spec::global_microbatch(plan_, coord_, index);
  return static_cast<uint64_t>(number * plan_.layout.micro_batch);
}

uint64_t VerifySource::sample_hash(int index) const {
  uint64_t sum = 0;
  for (int64_t s = 0; s < plan_.layout.micro_batch; ++s) {
    sum += base::hash_of(first_sample(index) + static_cast<uint64_t>(s));
  }
  return sum;
}

void VerifySource::fill(int index, const engine::HostMicrobatch& out) {
  constexpr uint64_t masked_one_in = 8;
  engine::set_equal_sequences(out, plan_.layout.micro_batch, plan_.seq_len);
  const auto length = static_cast<size_t>(plan_.seq_len);
  size_t borders = 0;
  for (int64_t s = 0; s < plan_.layout.micro_batch; ++s) {
    const uint64_t id = first_sample(index) + static_cast<uint64_t>(s);
    const uint64_t first = id * (2 * length + 2);  // its random numbers
    const size_t begin = static_cast<size_t>(s) * length;
    for (size_t t = 0; t < length; ++t) {
      out.tokens[begin + t] = static_cast<int32_t>(base::rng_below(key_, first + t, vocab_));
      const bool is_masked = base::rng_below(key_, first + length + 1 + t, masked_one_in) == 0;
      out.labels[begin + t] =
          is_masked ? -1 : static_cast<int32_t>(base::rng_below(key_, first + t + 1, vocab_));
    }
    if (!plan_.document_mask || length < 2) continue;
    const size_t cut = 1 + base::rng_below(key_, first + 2 * length + 1, length - 1);
    for (size_t t = cut; t < length; ++t) {
      out.positions[begin + t] = static_cast<int32_t>(t - cut);
    }
    out.labels[begin + cut - 1] = -1;
    out.seq_offsets[borders++] = static_cast<int32_t>(begin);
    out.seq_offsets[borders++] = static_cast<int32_t>(begin + cut);
  }
  if (borders > 0) {
    std::fill(out.seq_offsets.begin() + static_cast<std::ptrdiff_t>(borders), out.seq_offsets.end(),
              static_cast<int32_t>(out.tokens.size()));
  }
}

void SampleRecorder::fill(int index, const engine::HostMicrobatch& out) {
  inner_->fill(index, out);
  const size_t length = out.tokens.size() / static_cast<size_t>(sequences_);
  for (size_t begin = 0; begin < out.tokens.size(); begin += length) {
    base::Sha256 sha;
    sha.update(std::as_bytes(std::span<const int32_t>(out.tokens).subspan(begin, length)));
    sha.update(std::as_bytes(std::span<const int32_t>(out.labels).subspan(begin, length)));
    seen_.push_back(sha.hex());
  }
}

}  // namespace trireme::train
