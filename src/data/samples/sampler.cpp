// SPDX-License-Identifier: Apache-2.0
#include "data/samples/sampler.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "base/error.h"
#include "base/rng.h"
#include "data/files/vocabulary.h"
#include "data/samples/permutation.h"

namespace trireme::data {
namespace {

using base::ConfigError;

void check_options(const TokenData& data, const SamplerOptions& options) {
  constexpr int64_t longest = int64_t{1} << 30;
  if (options.seq_len < 1 || options.seq_len > longest) {
    throw ConfigError(fmt::format("seq_len = {}; allowed: 1 .. {}", options.seq_len, longest));
  }
  if (options.shuffle_len < 0 || options.shuffle_len > longest ||
      options.shuffle_len % options.seq_len != 0) {
    throw ConfigError(fmt::format("shuffle_len = {}; allowed: 0 and multiples of seq_len {} to {}",
                                  options.shuffle_len, options.seq_len, longest));
  }
  const double fraction = options.validation_fraction;
  if (!(fraction >= 0 && fraction < 1)) {
    throw ConfigError(fmt::format("validation fraction {}; allowed: 0 to below 1", fraction));
  }
  if (options.split == Split::validation && fraction == 0) {
    throw ConfigError("a validation split with a validation fraction of 0 has no samples");
  }
  if (options.vocab < 0) throw ConfigError(fmt::format("a vocabulary of {}", options.vocab));
  if (data.tokens() == 0) throw ConfigError(fmt::format("{}: holds no tokens", data.name()));
  const int64_t unit = options.shuffled_tokens();
  if (data.tokens() < unit + 1) {
    throw ConfigError(fmt::format("{}: {} tokens; one sample of seq_len {} takes {}", data.name(),
                                  data.tokens(), unit, unit + 1));
  }
  if (options.loss_mask && options.loss_mask->tokens() != data.tokens()) {
    throw ConfigError(fmt::format("{}: {} tokens, but its loss mask has {}; build both together",
                                  data.name(), data.tokens(), options.loss_mask->tokens()));
  }
}

}  // namespace

Sampler::Sampler(const TokenData& data, const SamplerOptions& options)
    : data_(data), options_(options) {
  check_options(data, options);
  const int64_t tokens = data.tokens(), unit = options.shuffled_tokens();
  const int64_t whole = (tokens - 1) / unit;
  int64_t validation = 0, train = whole;
  if (options.validation_fraction > 0 && options.split != Split::whole) {
    const double wanted = options.validation_fraction * static_cast<double>(whole);
    validation = std::max<int64_t>(1, std::llround(wanted));
    const int64_t left = tokens - (validation * unit + 1);
    train = left > unit ? (left - 1) / unit : 0;
    if (train == 0) {
      throw ConfigError(
          fmt::format("{}: {} tokens are {} samples of seq_len {}; a validation fraction of {} "
                      "takes {} of them "
                      "and leaves {} tokens for training, less than one sample",
                      data.name(), tokens, whole, unit, options.validation_fraction, validation,
                      std::max<int64_t>(left, 0)));
    }
  }
  const bool is_validation = options.split == Split::validation;
  samples_ = (is_validation ? validation : train) * (unit / options.seq_len);
  begin_ = is_validation ? tokens - (validation * unit + 1) : 0;
  order_key_ = base::rng_key(options.seed, fmt::format("data.order.{:016x}", fingerprint(data)));
}

int64_t Sampler::first_token(int64_t position) const {
  TRIREME_CHECK(position >= 0, "position {}", position);
  const int64_t epoch = position / samples_;
  const int64_t index = position % samples_;
  if (options_.split != Split::train) return begin_ + index * options_.seq_len;
  const int64_t together = options_.shuffled_tokens() / options_.seq_len;
  const auto bits = base::philox(order_key_, static_cast<uint64_t>(epoch));
  const Permutation permutation(uint64_t{bits[0]} << 32 | bits[1], samples_ / together);
  const int64_t shuffled = permutation(index / together) * together + index % together;
  return begin_ + shuffled * options_.seq_len;
}

void Sampler::fill_sample(int64_t position, const SampleOut& out,
                          std::vector<int32_t>& borders) const {
  const auto length = static_cast<size_t>(options_.seq_len);
  const int64_t begin = first_token(position);
  data_.read(begin, out.tokens);
  std::copy(out.tokens.begin() + 1, out.tokens.end(), out.labels.begin());
  data_.read(begin + options_.seq_len, out.labels.last(1));
  if (options_.vocab > 0) {
    check_vocabulary(data_, options_.vocab, begin, out.tokens);
    check_vocabulary(data_, options_.vocab, begin + options_.seq_len, out.labels.last(1));
  }

  if (options_.loss_mask) apply_loss_mask(*options_.loss_mask, begin + 1, out.labels);
  std::iota(out.positions.begin(), out.positions.end(), 0);
  if (!options_.document_mask) return;
  // Thread-local scratch, so that a sample allocates nothing once it has grown.
  thread_local std::vector<int64_t> starts;
  starts.clear();
  data_.documents().starts_in(begin + 1, begin + options_.seq_len + 1, starts);
  for (const int64_t start : starts) {
    const auto border = static_cast<size_t>(start - begin);
    out.labels[border - 1] = -1;
    if (border == length) break;  // the next sample's document
    borders.push_back(static_cast<int32_t>(border));
    std::iota(out.positions.begin() + static_cast<std::ptrdiff_t>(border), out.positions.end(), 0);
  }
}

}  // namespace trireme::data
