// SPDX-License-Identifier: Apache-2.0
// Maps a sample to its tokens: a pure function of (seed, data set, position). Ranks, micro-batches
// and workers only choose which position they request, so a run that is resumed or split in another
// way sees the same samples.
#pragma once

#include <cstdint>
#include <vector>

#include "data/files/token_data.h"
#include "data/samples/loss_mask.h"
#include "data/samples/sample_provider.h"

namespace trireme::data {

// Train: reshuffled in every epoch. Validation: the end of the stream, in order. Whole: all of the
// stream, in order.
enum class Split : uint8_t { train, validation, whole };

struct SamplerOptions {
  uint64_t seed = 0;
  int64_t seq_len = 0;
  Split split = Split::train;
  // Share of the samples that is taken from the end of the stream for validation; rounded to whole
  // multiples of shuffled_tokens(), at least one if above 0. The two splits share no token.
  double validation_fraction = 0;
  // Documents do not attend to each other: positions restart at a border, borders are reported, and
  // the last token of a document has no label.
  bool document_mask = false;
  // Every token must be below this; 0: not checked here.
  int64_t vocab = 0;
  // Labels that it excludes become -1; null: none. Covers the data set and outlives the sampler.
  const LossMask* loss_mask = nullptr;
  // The tokens that the shuffle keeps together, a multiple of seq_len; 0: seq_len. Samplers of one
  // shuffle_len and different seq_len read the same tokens in the same order and have the same
  // splits, so that a run can change seq_len and continue at the same token.
  int64_t shuffle_len = 0;

  int64_t shuffled_tokens() const { return shuffle_len > 0 ? shuffle_len : seq_len; }
};

// Sample w of a split takes seq_len + 1 tokens from w * seq_len of its part of the stream. The
// remainder at the end of the part (less than shuffled_tokens()) is not used. Any thread may call.
class Sampler final : public SampleProvider {
 public:
  // Throws ConfigError, with numbers, if the options are not legal or the data set is too short for
  // one sample of each split. `data` must outlive the sampler.
  Sampler(const TokenData& data, const SamplerOptions&);

  int64_t samples() const override { return samples_; }
  int64_t seq_len() const override { return options_.seq_len; }
  const SamplerOptions& options() const { return options_; }

  // Returns where the sample of `position` = epoch * samples() + index starts in the stream.
  int64_t first_token(int64_t position) const;

 private:
  void fill_sample(int64_t position, const SampleOut& out,
                   std::vector<int32_t>& borders) const override;

  const TokenData& data_;
  SamplerOptions options_;
  int64_t begin_ = 0;  // of the split's part of the stream
  int64_t samples_ = 0;
  uint64_t order_key_ = 0;
};

}  // namespace trireme::data
