// SPDX-License-Identifier: Apache-2.0
// A document as the set of its shingles: n-grams of words, or of code points. Two documents are as
// similar as their sets: the Jaccard similarity is shared shingles over all shingles.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::data {

enum class ShingleUnit : uint8_t { words, chars };
std::string_view name_of(ShingleUnit);  // "words", "chars"
// Throws ConfigError that lists the names.
ShingleUnit shingle_unit_from_name(std::string_view name);

struct ShingleOptions {
  ShingleUnit unit = ShingleUnit::words;  // words as split_words() returns them
  int size = 5;                           // units of a shingle
  bool normalized = false;                // of the text as normalize() returns it
  bool operator==(const ShingleOptions&) const = default;
};
inline constexpr int max_shingle_size = 1000;
// Throws ConfigError.
void check(const ShingleOptions&);

// Used from one thread; reuses its memory.
class Shingler {
 public:
  explicit Shingler(const ShingleOptions& options);

  // Replaces `hashes` by one 64-bit hash per shingle, in the order of the text, with repetitions.
  // `parts` (a prompt and its completion) are read as one sequence of units. A text with fewer
  // units than a shingle is one shingle; a text of white space has none.
  void hash(std::span<const std::string_view> parts, std::vector<uint64_t>& hashes);

 private:
  void append_units(std::string_view text);

  ShingleOptions options_;
  uint64_t last_power_;          // of the multiplier, for the unit that leaves the window
  std::vector<uint64_t> units_;  // hashes
  std::vector<std::string_view> words_;
  std::string normalized_;
};

// Sorts and removes repetitions: a list of hashes becomes a set.
void make_set(std::vector<uint64_t>& hashes);

// Returns the Jaccard similarity of two sets made by make_set(); 0 if both are empty.
double jaccard(std::span<const uint64_t> a, std::span<const uint64_t> b);

}  // namespace trireme::data
