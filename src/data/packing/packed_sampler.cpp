// SPDX-License-Identifier: Apache-2.0
#include "data/packing/packed_sampler.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/rng.h"
#include "base/token_label.h"
#include "data/files/vocabulary.h"
#include "data/samples/permutation.h"

namespace trireme::data {

PackedSampler::PackedSampler(const TokenData& data, const PackingTable& table,
                             const PackedSamplerOptions& options)
    : data_(data), table_(table), options_(options) {
  if (options.pad_token < 0 || (options.vocab > 0 && options.pad_token >= options.vocab)) {
    throw base::ConfigError(fmt::format("pad token {}; allowed: 0 to below the vocabulary of {}",
                                        options.pad_token, options.vocab));
  }
  if (options.loss_mask && options.loss_mask->tokens() != data.tokens()) {
    throw base::ConfigError(
        fmt::format("{}: {} tokens, but its loss mask has {}; build both together", data.name(),
                    data.tokens(), options.loss_mask->tokens()));
  }
  order_key_ = base::rng_key(options.seed, fmt::format("data.packed.{:016x}", fingerprint(data)));
}

int64_t PackedSampler::sequence_at(int64_t position) const {
  const int64_t epoch = position / samples(), index = position % samples();
  if (!options_.is_shuffled) return index;
  const auto bits = base::philox(order_key_, static_cast<uint64_t>(epoch));
  return Permutation(uint64_t{bits[0]} << 32 | bits[1], samples())(index);
}

void PackedSampler::fill_sample(int64_t position, const SampleOut& out,
                                std::vector<int32_t>& borders) const {
  const int64_t sequence = sequence_at(position), pieces = table_.pieces(sequence);
  size_t at = 0;
  // Returns the next `slots` of the sample, with their positions.
  const auto next_part = [&](size_t slots) {
    const SampleOut part{.tokens = out.tokens.subspan(at, slots),
                         .labels = out.labels.subspan(at, slots),
                         .positions = out.positions.subspan(at, slots)};
    const bool is_border = options_.document_mask && at > 0;
    if (is_border) borders.push_back(static_cast<int32_t>(at));
    std::iota(part.positions.begin(), part.positions.end(),
              is_border ? 0 : static_cast<int32_t>(at));
    at += slots;
    return part;
  };
  for (int64_t i = 0; i < pieces; ++i) {
    const PackingTable::Piece piece = table_.piece(sequence, i);
    fill_piece(piece, next_part(static_cast<size_t>(piece.slots)));
  }
  if (at == out.tokens.size()) return;
  const SampleOut padding = next_part(out.tokens.size() - at);
  std::fill(padding.tokens.begin(), padding.tokens.end(), options_.pad_token);
  std::fill(padding.labels.begin(), padding.labels.end(), base::padding_label);
}

void PackedSampler::fill_piece(const PackingTable::Piece& piece, const SampleOut& out) const {
  data_.read(piece.first_token, out.tokens);
  std::copy(out.tokens.begin() + 1, out.tokens.end(), out.labels.begin());
  data_.read(piece.first_token + piece.slots, out.labels.last(1));
  if (options_.vocab > 0) {
    check_vocabulary(data_, options_.vocab, piece.first_token, out.tokens);
    check_vocabulary(data_, options_.vocab, piece.first_token + piece.slots, out.labels.last(1));
  }
  if (options_.loss_mask) apply_loss_mask(*options_.loss_mask, piece.first_token + 1, out.labels);
}

}  // namespace trireme::data
