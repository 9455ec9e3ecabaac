// SPDX-License-Identifier: Apache-2.0
// From a block of documents to what is needed to compare them: the stage that runs in parallel.
#pragma once

#include <cstdint>
#include <vector>

#include "data/clean/clean.h"
#include "data/clean/exact_duplicates.h"
#include "data/clean/near/minhash.h"
#include "data/clean/outcome.h"
#include "data/clean/storage/spool.h"
#include "data/sources/block_parser.h"

namespace trireme::data {

struct CleanBlock {
  SourceBlock source;

  SpoolBlock records;
  std::vector<Outcome> outcomes;     // kept, or why not, by the document alone
  std::vector<TextHash> hashes;      // of all documents, if exact duplicates are removed
  std::vector<uint32_t> signatures;  // of documents whose outcome is `kept`, one after the other
  std::vector<uint64_t> keys;        // of the same documents: band_keys()
  int64_t lines = 0;
};

// Used from one thread.
class BlockCleaner {
 public:
  // REQUIRES: `minhash` outlives the cleaner. `bands` is not used without near-duplicates.
  BlockCleaner(const CleanOptions& options, const MinHash& minhash, const Bands& bands);

  // Fills `block` from block.source. Throws ConfigError for a shard of tokens.
  void clean(CleanBlock& block, const Shard& shard);

 private:
  Outcome outcome_of(const Document& document, CleanBlock& block);

  BlockParser parser_;
  bool removes_exact_, normalized_, has_near_;
  std::optional<RepetitionLimits> repetition_;
  RepetitionMeter meter_;
  Shingler shingler_;
  const MinHash& minhash_;
  Bands bands_;
  Document document_;
  std::vector<uint64_t> shingles_;
};

}  // namespace trireme::data
