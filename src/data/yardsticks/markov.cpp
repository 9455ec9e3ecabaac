// SPDX-License-Identifier: Apache-2.0
#include "data/yardsticks/markov.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/rng.h"

namespace trireme::data {
namespace {

// The first index whose cumulative probability passes u.
int32_t pick(std::span<const double> probabilities, double u) {
  for (size_t i = 0; i + 1 < probabilities.size(); ++i) {
    u -= probabilities[i];
    if (u < 0) return static_cast<int32_t>(i);
  }
  return static_cast<int32_t>(probabilities.size() - 1);
}

}  // namespace

MarkovSource::MarkovSource(uint64_t seed, int vocab, int order, double sharpness)
    : seed_(seed), vocab_(vocab), order_(order), contexts_(1) {
  TRIREME_CHECK(vocab >= 2 && order >= 0 && sharpness >= 0, "vocab {}, order {}, sharpness {}",
                vocab, order, sharpness);
  for (int i = 0; i < order; ++i) contexts_ *= vocab;
  TRIREME_CHECK(contexts_ <= (1 << 20), "{} contexts", contexts_);

  const base::RngKey key = base::rng_key(seed, "markov.rows");
  rows_.resize(static_cast<size_t>(contexts_ * vocab));
  for (int64_t c = 0; c < contexts_; ++c) {
    double sum = 0;
    for (int64_t v = 0; v < vocab; ++v) {
      const auto at = static_cast<size_t>(c * vocab + v);
      // Never zero, so that the chain reaches every context and no token is impossible.
      rows_[at] = std::exp(sharpness * base::rng_uniform(key, at));
      sum += rows_[at];
    }
    for (int64_t v = 0; v < vocab; ++v) rows_[static_cast<size_t>(c * vocab + v)] /= sum;
  }

  // Power iteration; all rows are positive, so it converges geometrically.
  stationary_.assign(static_cast<size_t>(contexts_), 1.0 / static_cast<double>(contexts_));
  std::vector<double> next(stationary_.size());
  for (int round = 0; round < 10000; ++round) {
    std::fill(next.begin(), next.end(), 0.0);
    for (int64_t c = 0; c < contexts_; ++c) {
      for (int64_t v = 0; v < vocab; ++v) {
        const int64_t to = contexts_ == 1 ? 0 : (c * vocab + v) % contexts_;
        next[static_cast<size_t>(to)] +=
            stationary_[static_cast<size_t>(c)] * rows_[static_cast<size_t>(c * vocab + v)];
      }
    }
    double change = 0;
    for (size_t i = 0; i < next.size(); ++i) change += std::abs(next[i] - stationary_[i]);
    stationary_.swap(next);
    if (change < 1e-15) break;
  }
  for (int64_t c = 0; c < contexts_; ++c) {
    for (const double p : row(c))
      entropy_rate_ -= stationary_[static_cast<size_t>(c)] * p * std::log(p);
  }
}

void MarkovSource::generate(uint64_t stream, std::span<int32_t> out) const {
  const base::RngKey key = base::rng_key(seed_ + 0x9e3779b9ULL * (stream + 1), "markov.stream");
  int64_t context = pick(stationary_, base::rng_uniform(key, 0));
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = pick(row(context), base::rng_uniform(key, i + 1));
    context = contexts_ == 1 ? 0 : (context * vocab_ + out[i]) % contexts_;
  }
}

double MarkovSource::log_probability(std::span<const int32_t> context, int32_t next) const {
  TRIREME_CHECK(next >= 0 && next < vocab_, "token {} of {}", next, vocab_);
  return std::log(row(index_of(context))[static_cast<size_t>(next)]);
}

int64_t MarkovSource::index_of(std::span<const int32_t> context) const {
  TRIREME_CHECK(static_cast<int>(context.size()) == order_, "{} tokens of context, order {}",
                context.size(), order_);
  int64_t index = 0;
  for (const int32_t token : context) index = index * vocab_ + token;
  return index;
}

std::span<const double> MarkovSource::row(int64_t context) const {
  return std::span(rows_).subspan(static_cast<size_t>(context * vocab_),
                                  static_cast<size_t>(vocab_));
}

}  // namespace trireme::data
