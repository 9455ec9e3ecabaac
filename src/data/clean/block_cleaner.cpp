// SPDX-License-Identifier: Apache-2.0
#include "data/clean/block_cleaner.h"

#include <array>

namespace trireme::data {

BlockCleaner::BlockCleaner(const CleanOptions& options, const MinHash& minhash, const Bands& bands)
    : parser_(options.documents),
      removes_exact_(options.removes_exact),
      normalized_(options.normalized),
      has_near_(options.near.has_value()),
      repetition_(options.repetition),
      shingler_(options.near ? options.near->shingles : ShingleOptions{}),
      minhash_(minhash),
      bands_(bands) {}

void BlockCleaner::clean(CleanBlock& block, const Shard& shard) {
  block.records.clear();
  block.outcomes.clear();
  block.hashes.clear();
  block.signatures.clear();
  block.keys.clear();
  parser_.start(block.source, shard);
  while (parser_.next(document_)) {
    block.records.append(document_, block.source.shard);
    block.outcomes.push_back(outcome_of(document_, block));
  }
  block.lines = parser_.lines();
}

Outcome BlockCleaner::outcome_of(const Document& document, CleanBlock& block) {
  const std::array<std::string_view, 2> both = {document.text, document.completion.value_or("")};
  const auto parts = std::span(both).first(document.completion ? 2 : 1);
  if (removes_exact_) {
    block.hashes.push_back(document.rejected ? TextHash{} : text_hash(parts, normalized_));
  }
  if (document.rejected) return Outcome::rejected;
  if (repetition_) {
    for (const std::string_view part : parts) {
      if (meter_.above(part, *repetition_)) return Outcome::repetition;
    }
  }
  if (!has_near_) return Outcome::kept;
  shingler_.hash(parts, shingles_);
  if (shingles_.empty()) return Outcome::kept_without_shingles;
  const auto values = static_cast<size_t>(minhash_.permutations());
  const auto bands = static_cast<size_t>(bands_.bands);
  block.signatures.resize(block.signatures.size() + values);
  const auto signature = std::span(block.signatures).last(values);
  minhash_.sign(shingles_, signature);
  block.keys.resize(block.keys.size() + bands);
  band_keys(bands_, signature, std::span(block.keys).last(bands));
  return Outcome::kept;
}

}  // namespace trireme::data
