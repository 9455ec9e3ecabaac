// SPDX-License-Identifier: Apache-2.0
// Near-duplicates of a corpus: MinHash signatures, bands, and a comparison of every candidate.
//
// Documents are decided in order. A document is removed if one that is kept, and comes before it,
// is similar to it. No document is removed because of a chain of others, so that every removed
// document is similar to one that stays.
//
// Signatures and the keys of bands are on disk; bands are grouped one after the other. Memory for N
// documents: 16 N bytes while a band is grouped, then 4 bytes for every group of a band that has
// two documents or more, and 8 bytes more for every further kept document of a group.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/system/threads.h"
#include "data/clean/near/bands.h"
#include "data/clean/storage/column_file.h"
#include "data/clean/storage/scratch_file.h"

namespace trireme::data {

// Computes the similarity of documents. Used from one thread.
class Comparer {
 public:
  virtual ~Comparer() = default;
  // Consecutive calls often have the same first document.
  virtual double similarity(uint32_t document, uint32_t other) = 0;
};

struct NearDuplicate {
  uint32_t kept = 0;
  double similarity = 0;
};

struct NearCounts {
  int64_t groups = 0;      // of all bands, with two documents or more
  int64_t candidates = 0;  // pairs that share a group, and whose first document was kept
  int64_t compared = 0;    // candidates whose similarity was computed
};

struct NearSearch {
  double threshold = 0.8;  // removed: similarity >= threshold
  // Makes a comparer for a thread; called from many threads. Empty: the estimate by signatures
  // decides.
  std::function<std::unique_ptr<Comparer>()> make_comparer;
  // Documents that take part; at most those that were added with a signature.
  std::function<bool(uint32_t document)> takes_part;
  // Called in order of documents, from the caller's thread.
  std::function<void(uint32_t document, const NearDuplicate&)> removed;
  std::function<void(int64_t done, int64_t total)> progress;  // of bands and chunks; may be empty
};

// Used from one thread.
class NearDuplicateIndex {
 public:
  // Work files are made in `folder`.
  NearDuplicateIndex(const std::filesystem::path& folder, int permutations, const Bands& bands);

  // Adds the next document. `signature` has `permutations` values; `keys` are its band_keys().
  void add(std::span<const uint32_t> signature, std::span<const uint64_t> keys);
  // Adds a document that cannot take part.
  void add_none();

  // Used once. The result does not depend on the number of threads.
  NearCounts search(base::ThreadPool& pool, const NearSearch& search);

 private:
  std::filesystem::path folder_;
  int permutations_;
  Bands bands_;
  ScratchFile signatures_;
  ColumnFile<uint64_t> keys_;
  std::vector<uint32_t> no_signature_;
  std::vector<uint64_t> no_keys_;
};

}  // namespace trireme::data
