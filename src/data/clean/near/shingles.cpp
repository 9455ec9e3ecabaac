// SPDX-License-Identifier: Apache-2.0
// Sketch: a word of six bytes costs some 2 ns to find, 3 ns to hash (XXH3) and 2 ns to combine, so
// that shingles are made at some 700 MB/s per core.
#include "data/clean/near/shingles.h"

#define XXH_INLINE_ALL
#include <fmt/core.h>
#include <xxhash.h>

#include <algorithm>

#include "base/error.h"
#include "data/clean/words.h"
#include "text/unicode/utf8.h"

namespace trireme::data {
namespace {

// A shingle is the polynomial of its units at this odd number, modulo 2^64.
constexpr uint64_t shingle_multiplier = 0x9E3779B97F4A7C15U;

// The finalizer of MurmurHash3: every bit of the input changes every bit of the result.
uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 33)) * 0xFF51AFD7ED558CCDU;
  x = (x ^ (x >> 33)) * 0xC4CEB9FE1A85EC53U;
  return x ^ (x >> 33);
}

}  // namespace

std::string_view name_of(ShingleUnit unit) {
  return unit == ShingleUnit::words ? "words" : "chars";
}

ShingleUnit shingle_unit_from_name(std::string_view name) {
  for (const ShingleUnit unit : {ShingleUnit::words, ShingleUnit::chars}) {
    if (name == name_of(unit)) return unit;
  }
  throw base::ConfigError(fmt::format("shingles of '{}'; allowed: words, chars", name));
}

void check(const ShingleOptions& options) {
  if (options.size < 1 || options.size > max_shingle_size) {
    throw base::ConfigError(fmt::format("shingles of {} {}; allowed: 1 .. {}", options.size,
                                        name_of(options.unit), max_shingle_size));
  }
}

Shingler::Shingler(const ShingleOptions& options) : options_(options), last_power_(1) {
  check(options);
  for (int i = 1; i < options.size; ++i) last_power_ *= shingle_multiplier;
}

void Shingler::hash(std::span<const std::string_view> parts, std::vector<uint64_t>& hashes) {
  hashes.clear();
  units_.clear();
  for (const std::string_view part : parts) append_units(part);
  const auto size = static_cast<size_t>(options_.size);
  uint64_t window = 0;
  for (size_t i = 0; i < units_.size(); ++i) {
    if (i >= size) window -= units_[i - size] * last_power_;
    window = window * shingle_multiplier + units_[i];
    if (i + 1 >= size) hashes.push_back(mixed(window));
  }
  if (hashes.empty() && !units_.empty()) hashes.push_back(mixed(window));
}

void Shingler::append_units(std::string_view text) {
  if (options_.normalized) {
    normalize(text, normalized_);
    text = normalized_;
  }
  if (options_.unit == ShingleUnit::words) {
    split_words(text, words_);
    for (const std::string_view word : words_) {
      units_.push_back(XXH3_64bits(word.data(), word.size()));
    }
    return;
  }
  split_words(text, words_);
  if (words_.empty()) return;
  for (size_t at = 0; at < text.size();) {
    const text::CodePoint c = text::code_point_at(text.data() + at);
    units_.push_back(mixed(static_cast<uint64_t>(c.value) + 1));
    at += c.bytes;
  }
}

void make_set(std::vector<uint64_t>& hashes) {
  std::sort(hashes.begin(), hashes.end());
  hashes.erase(std::unique(hashes.begin(), hashes.end()), hashes.end());
}

double jaccard(std::span<const uint64_t> a, std::span<const uint64_t> b) {
  size_t i = 0, j = 0, shared = 0;
  while (i < a.size() && j < b.size()) {
    const uint64_t x = a[i], y = b[j];
    shared += x == y ? 1 : 0;
    i += x <= y ? 1 : 0;
    j += y <= x ? 1 : 0;
  }
  const size_t all = a.size() + b.size() - shared;
  return all == 0 ? 0 : static_cast<double>(shared) / static_cast<double>(all);
}

}  // namespace trireme::data
