// SPDX-License-Identifier: Apache-2.0
// Which source provides each sample of a mixture, and which sample of the source it is, if sources
// may run out.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "data/mixture/proportional_order.h"

namespace trireme::data {

inline constexpr int64_t unlimited_samples = std::numeric_limits<int64_t>::max();

struct MixtureSource {
  std::string name;   // for messages
  double weight = 1;  // 0: not in the mixture
  int64_t max_samples = unlimited_samples;
};

// A range of positions in which the same sources take part.
struct MixtureSegment {
  int64_t begin = 0;
  std::vector<int> sources;     // that take part, ascending
  std::vector<int64_t> counts;  // by source of the mixture: samples before `begin`
  int exhausted = -1;           // the source whose last sample is at begin - 1; -1: none
};

// A source leaves the mixture after its last sample; the others then share the positions by their
// weights. All segments are computed by the constructor, so that at() is a pure function of
// (sources, key, position). Each segment is a ProportionalOrder with its blocks in memory. Within a
// segment, counts since its begin are those of ProportionalOrder: less than one sample from the
// share. Any thread may call.
class MixtureOrder {
 public:
  // Only the first `positions` are prepared; they do not depend on this number. Throws ConfigError
  // that names the source about weights (shares.h) and limits below 0.
  MixtureOrder(const std::vector<MixtureSource>& sources, base::RngKey key,
               int64_t positions = unlimited_samples);

  // Returns the positions until all sources are exhausted, at most those that were prepared.
  int64_t samples() const { return samples_; }
  // REQUIRES: 0 <= position < min(samples(), 2^61).
  SampleOrigin at(int64_t position) const;
  // Returns the samples of every source before `position`. REQUIRES: 0 <= position <= samples().
  std::vector<int64_t> counts(int64_t position) const;
  const std::vector<MixtureSegment>& segments() const { return segments_; }

 private:
  size_t segment_at(int64_t position) const;

  std::vector<MixtureSegment> segments_;
  std::vector<std::unique_ptr<ProportionalOrder>> orders_;  // by segment
  int64_t samples_ = 0;
};

}  // namespace trireme::data
