// SPDX-License-Identifier: Apache-2.0
#include "data/clean/near/decider.h"

#include <algorithm>
#include <cmath>

#include "data/clean/near/minhash.h"

namespace trireme::data {
namespace {

// A candidate is compared if its estimate is at most four standard deviations below the threshold,
// so that one in 30,000 of the pairs at the threshold is lost.
double min_estimate(double threshold, int permutations) {
  return threshold - 4 * std::sqrt(threshold * (1 - threshold) / permutations);
}

}  // namespace

Decider::Decider(const ScratchFile& signatures, int permutations, const NearSearch& search)
    : signatures_(signatures),
      threshold_(search.threshold),
      min_estimate_(min_estimate(search.threshold, permutations)),
      comparer_(search.make_comparer ? search.make_comparer() : nullptr),
      own_(static_cast<size_t>(permutations)),
      other_(static_cast<size_t>(permutations)) {}

std::optional<NearDuplicate> Decider::decide(uint32_t document, std::vector<uint32_t>& found,
                                             const std::optional<Known>& known) {
  if (found.empty()) return std::nullopt;
  rank(found);
  read(document, own_);
  for (const Ranked& candidate : ranked_) {
    ++counts_.candidates;
    double similarity = estimate(candidate.document);
    if (comparer_ != nullptr) {
      if (similarity < min_estimate_) continue;
      const bool is_known = known && known->document == candidate.document;
      similarity = is_known ? known->similarity : compare(document, candidate.document);
    }
    if (similarity >= threshold_) return NearDuplicate{candidate.document, similarity};
  }
  return std::nullopt;
}

std::optional<Decider::Known> Decider::compare_ahead(uint32_t document,
                                                     std::vector<uint32_t>& found) {
  if (found.empty() || comparer_ == nullptr) return std::nullopt;
  rank(found);
  read(document, own_);
  const uint32_t candidate = ranked_.front().document;
  if (estimate(candidate) < min_estimate_) return std::nullopt;
  return Known{candidate, compare(document, candidate)};
}

void Decider::rank(std::vector<uint32_t>& found) {
  std::sort(found.begin(), found.end());
  ranked_.clear();
  for (const uint32_t document : found) {
    if (ranked_.empty() || ranked_.back().document != document) ranked_.push_back({0, document});
    ++ranked_.back().shared;
  }
  std::stable_sort(ranked_.begin(), ranked_.end(),
                   [](const Ranked& a, const Ranked& b) { return a.shared > b.shared; });
}

double Decider::estimate(uint32_t other) {
  read(other, other_);
  return estimated_jaccard(own_, other_);
}

double Decider::compare(uint32_t document, uint32_t other) {
  ++counts_.compared;
  return comparer_->similarity(document, other);
}

void Decider::read(uint32_t document, std::vector<uint32_t>& signature) const {
  const auto bytes = static_cast<int64_t>(signature.size() * sizeof(uint32_t));
  signatures_.read_at(int64_t{document} * bytes, std::as_writable_bytes(std::span(signature)));
}

}  // namespace trireme::data
