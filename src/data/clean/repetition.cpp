// SPDX-License-Identifier: Apache-2.0
// Lines, paragraphs and n-grams are compared by 64-bit hashes. Nine passes over the words with one
// table lookup each: some 100 ns a word.
#include "data/clean/repetition.h"

#define XXH_INLINE_ALL
#include <fmt/core.h>
#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <unordered_set>

#include "base/error.h"
#include "data/clean/words.h"

namespace trireme::data {
namespace {

constexpr std::array<std::string_view, repetition_rules> rule_names = {
    "duplicate_lines",
    "duplicate_paragraphs",
    "duplicate_line_characters",
    "duplicate_paragraph_characters",
    "top_2_gram",
    "top_3_gram",
    "top_4_gram",
    "duplicate_5_grams",
    "duplicate_6_grams",
    "duplicate_7_grams",
    "duplicate_8_grams",
    "duplicate_9_grams",
    "duplicate_10_grams"};

constexpr size_t index_of(RepetitionRule rule) { return static_cast<size_t>(rule); }

double part_of(int64_t part, int64_t all) {
  return all == 0 ? 0 : std::min(1.0, static_cast<double>(part) / static_cast<double>(all));
}

// Counts pieces that occurred before, and their characters.
struct DuplicateCounter {
  std::unordered_set<uint64_t> known;
  int64_t all = 0, duplicates = 0, characters = 0;

  void add(std::string_view piece) {
    ++all;
    if (known.insert(XXH3_64bits(piece.data(), piece.size())).second) return;
    ++duplicates;
    characters += code_points(piece);
  }
};

}  // namespace

std::string_view name_of(RepetitionRule rule) { return rule_names[index_of(rule)]; }

RepetitionLimits repetition_limits_from_text(std::string_view text) {
  RepetitionLimits limits;
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), item.size() + 1));
    const size_t equals = item.find('=');
    const std::string_view name = item.substr(0, equals);
    const auto rule = std::find(rule_names.begin(), rule_names.end(), name);
    if (equals == std::string_view::npos || rule == rule_names.end()) {
      std::string names;
      for (const std::string_view known : rule_names) names += fmt::format(" {}", known);
      throw base::ConfigError(
          fmt::format("limit '{}': allowed is NAME=VALUE with one of the names{}", item, names));
    }
    const std::string_view value = item.substr(equals + 1);
    double number = -1;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size() ||
        !(number >= 0 && number <= 1)) {
      throw base::ConfigError(
          fmt::format("limit '{}': the value is '{}'; allowed: from 0 to 1", item, value));
    }
    limits.max[static_cast<size_t>(rule - rule_names.begin())] = number;
  }
  return limits;
}

RepetitionParts RepetitionMeter::measure(std::string_view text) {
  RepetitionParts parts{};
  measure_lines(text, parts);
  split_words(text, words_);
  places_.clear();
  const char* before = text.data();
  int64_t characters = 0;
  for (const std::string_view word : words_) {
    characters += code_points({before, static_cast<size_t>(word.data() - before)});
    const int64_t begin = characters;
    characters += code_points(word);
    before = word.data() + word.size();
    places_.push_back({XXH3_64bits(word.data(), word.size()), begin, characters});
  }
  characters += code_points({before, static_cast<size_t>(text.data() + text.size() - before)});
  for (size_t size = 2; size <= 4; ++size) {
    parts[index_of(RepetitionRule::top_2_gram) + size - 2] =
        part_of(top_characters(size), characters);
  }
  for (size_t size = 5; size <= 10; ++size) {
    parts[index_of(RepetitionRule::duplicate_5_grams) + size - 5] =
        part_of(duplicate_characters(size), characters);
  }
  return parts;
}

std::optional<RepetitionFound> RepetitionMeter::above(std::string_view text,
                                                      const RepetitionLimits& limits) {
  const RepetitionParts parts = measure(text);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i] > limits.max[i]) return RepetitionFound{static_cast<RepetitionRule>(i), parts[i]};
  }
  return std::nullopt;
}

void RepetitionMeter::measure_lines(std::string_view text, RepetitionParts& parts) {
  DuplicateCounter lines, paragraphs;
  size_t paragraph = 0, paragraph_end = 0;  // the one that is open
  const auto end_paragraph = [&] {
    if (paragraph_end > paragraph) {
      paragraphs.add(text.substr(paragraph, paragraph_end - paragraph));
    }
  };
  for (size_t at = 0; at < text.size();) {
    const std::string_view line = text.substr(at, text.find('\n', at) - at);
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) {
      end_paragraph();
      paragraph = paragraph_end = at + line.size() + 1;
    } else {
      lines.add(line);
      paragraph_end = at + line.size();
    }
    at += line.size() + 1;
  }
  end_paragraph();
  const int64_t characters = code_points(text);
  const auto set = [&](RepetitionRule rule, double part) { parts[index_of(rule)] = part; };
  set(RepetitionRule::duplicate_lines, part_of(lines.duplicates, lines.all));
  set(RepetitionRule::duplicate_paragraphs, part_of(paragraphs.duplicates, paragraphs.all));
  set(RepetitionRule::duplicate_line_characters, part_of(lines.characters, characters));
  set(RepetitionRule::duplicate_paragraph_characters, part_of(paragraphs.characters, characters));
}

// Equal n-grams may differ in white space, and so in characters: their sum counts.
int64_t RepetitionMeter::top_characters(size_t size) {
  hash_ngrams(size);
  int64_t top = 0;
  for (size_t i = 0; i < ngrams_.size(); ++i) {
    const int64_t characters = places_[i + size - 1].end - places_[i].begin;
    Slot& slot = table_[slot_of(ngrams_[i])];
    if (slot.characters > 0) top = std::max(top, slot.characters + characters);
    slot = {ngrams_[i], slot.characters + characters};
  }
  return top;
}

int64_t RepetitionMeter::duplicate_characters(size_t size) {
  hash_ngrams(size);
  int64_t duplicate = 0;
  for (size_t i = 0; i < ngrams_.size();) {
    const int64_t characters = places_[i + size - 1].end - places_[i].begin;
    Slot& slot = table_[slot_of(ngrams_[i])];
    if (slot.characters > 0) {
      duplicate += characters;
      i += size;
    } else {
      slot = {ngrams_[i], characters};
      ++i;
    }
  }
  return duplicate;
}

void RepetitionMeter::hash_ngrams(size_t size) {
  constexpr uint64_t ngram_multiplier = 0x9E3779B97F4A7C15U;
  uint64_t last_power = 1, window = 0;
  for (size_t i = 1; i < size; ++i) last_power *= ngram_multiplier;
  ngrams_.clear();
  for (size_t i = 0; i < places_.size(); ++i) {
    if (i >= size) window -= places_[i - size].hash * last_power;
    window = window * ngram_multiplier + places_[i].hash;
    if (i + 1 >= size) ngrams_.push_back(window ^ (window >> 32));
  }
  reset_table(ngrams_.size());
}

void RepetitionMeter::reset_table(size_t entries) {
  size_t size = 16;
  while (size < 2 * entries) size *= 2;
  table_.assign(size, Slot{});
}

size_t RepetitionMeter::slot_of(uint64_t hash) const {
  size_t slot = (hash * 0xC4CEB9FE1A85EC53U >> 20) & (table_.size() - 1);
  while (table_[slot].characters > 0 && table_[slot].hash != hash) {
    slot = (slot + 1) & (table_.size() - 1);
  }
  return slot;
}

}  // namespace trireme::data
