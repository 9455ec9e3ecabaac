// SPDX-License-Identifier: Apache-2.0
// Decides whether a document is similar to one of its candidates.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "data/clean/near/near_duplicates.h"
#include "data/clean/storage/scratch_file.h"

namespace trireme::data {

// Used from one thread.
class Decider {
 public:
  // A similarity that was computed ahead.
  struct Known {
    uint32_t document = 0;
    double similarity = 0;
  };

  // `signatures` has `permutations` values of 32 bits for every document. REQUIRES: signatures and
  // search outlive the object.
  Decider(const ScratchFile& signatures, int permutations, const NearSearch& search);

  // Returns the first candidate that is similar. `found` has the candidates, once for every group
  // that they share, and is sorted. Those with the most shared groups are tried first: they are the
  // most similar ones, probably.
  std::optional<NearDuplicate> decide(uint32_t document, std::vector<uint32_t>& found,
                                      const std::optional<Known>& known = std::nullopt);

  // Compares a document with the first candidate, which decide() may need later.
  std::optional<Known> compare_ahead(uint32_t document, std::vector<uint32_t>& found);

  const NearCounts& counts() const { return counts_; }  // groups: 0

 private:
  struct Ranked {
    uint32_t shared = 0, document = 0;
  };

  void rank(std::vector<uint32_t>& found);
  double estimate(uint32_t other);  // REQUIRES: own_ was read
  double compare(uint32_t document, uint32_t other);
  void read(uint32_t document, std::vector<uint32_t>& signature) const;

  const ScratchFile& signatures_;
  double threshold_, min_estimate_;
  std::unique_ptr<Comparer> comparer_;
  std::vector<uint32_t> own_, other_;
  std::vector<Ranked> ranked_;
  NearCounts counts_;
};

}  // namespace trireme::data
