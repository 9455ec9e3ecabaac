// SPDX-License-Identifier: Apache-2.0
// Texts that repeat themselves, by the rules of Gopher (Rae et al. 2021, table A1).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::data {

// Parts of a text, each from 0 to 1. Lines are separated by line ends, paragraphs by two or more;
// blank lines do not count. A line, a paragraph or an n-gram of words is a duplicate if it occurred
// before in the text.
enum class RepetitionRule : uint8_t {
  duplicate_lines,                 // of all lines
  duplicate_paragraphs,            // of all paragraphs
  duplicate_line_characters,       // characters in duplicate lines, of all characters
  duplicate_paragraph_characters,  // the same with paragraphs
  // Characters in the n-gram of words that covers the most, if it occurs at least twice.
  top_2_gram,
  top_3_gram,
  top_4_gram,
  // Characters in duplicate n-grams, without counting overlaps twice.
  duplicate_5_grams,
  duplicate_6_grams,
  duplicate_7_grams,
  duplicate_8_grams,
  duplicate_9_grams,
  duplicate_10_grams,
};
inline constexpr size_t repetition_rules = 13;
std::string_view name_of(RepetitionRule);  // "duplicate_lines"

using RepetitionParts = std::array<double, repetition_rules>;

struct RepetitionLimits {
  // Those of Gopher. A text above one of them is dropped; 1 switches a rule off.
  RepetitionParts max = {0.30, 0.30, 0.20, 0.20, 0.20, 0.18, 0.16,
                         0.15, 0.14, 0.13, 0.12, 0.11, 0.10};
  bool operator==(const RepetitionLimits&) const = default;
};
// Reads "top_2_gram=0.25,duplicate_lines=1"; other limits keep their defaults. Throws ConfigError
// that names the part that is wrong and what is allowed.
RepetitionLimits repetition_limits_from_text(std::string_view text);

struct RepetitionFound {
  RepetitionRule rule = RepetitionRule::duplicate_lines;
  double part = 0;
};

// Used from one thread; reuses its memory. REQUIRES of all texts: valid UTF-8.
class RepetitionMeter {
 public:
  RepetitionParts measure(std::string_view text);
  // Returns the first rule whose limit the text is above.
  std::optional<RepetitionFound> above(std::string_view text, const RepetitionLimits&);

 private:
  void measure_lines(std::string_view text, RepetitionParts& parts);
  int64_t top_characters(size_t size);
  int64_t duplicate_characters(size_t size);
  void hash_ngrams(size_t size);
  void reset_table(size_t entries);
  // Returns the slot of a hash: empty, or with this hash.
  size_t slot_of(uint64_t hash) const;

  struct WordPlace {
    uint64_t hash;
    int64_t begin, end;  // in code points of the text
  };
  struct Slot {
    uint64_t hash = 0;
    int64_t characters = 0;  // 0: the slot is empty
  };
  std::vector<std::string_view> words_;
  std::vector<WordPlace> places_;
  std::vector<uint64_t> ngrams_;
  std::vector<Slot> table_;
};

}  // namespace trireme::data
