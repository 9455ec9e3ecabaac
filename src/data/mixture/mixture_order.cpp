// SPDX-License-Identifier: Apache-2.0
#include "data/mixture/mixture_order.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "data/mixture/shares.h"

namespace trireme::data {
namespace {

constexpr int64_t max_position = int64_t{1} << 61;
// A source of the smallest share with more samples than this lasts beyond max_position.
constexpr int64_t max_limit = int64_t{1} << 47;

std::vector<int64_t> shares_of(const std::vector<MixtureSource>& sources,
                               const std::vector<int>& active) {
  std::vector<double> weights;
  std::vector<std::string> names;
  for (const int source : active) {
    weights.push_back(sources[static_cast<size_t>(source)].weight);
    names.push_back(sources[static_cast<size_t>(source)].name);
  }
  return integer_shares(weights, names);
}

void check_sources(const std::vector<MixtureSource>& sources) {
  for (const MixtureSource& source : sources) {
    if (!(source.weight >= 0) || source.max_samples < 0) {
      throw base::ConfigError(
          fmt::format("source '{}': weight {}, at most {} samples; allowed: 0 and more",
                      source.name, source.weight, source.max_samples));
    }
  }
}

// Sets the sources of a segment by its counts. Returns how many samples each of them has left.
std::vector<int64_t> choose_sources(const std::vector<MixtureSource>& sources,
                                    MixtureSegment& segment) {
  segment.sources.clear();
  std::vector<int64_t> left;
  for (size_t i = 0; i < sources.size(); ++i) {
    if (sources[i].weight <= 0 || segment.counts[i] >= sources[i].max_samples) continue;
    segment.sources.push_back(static_cast<int>(i));
    left.push_back(sources[i].max_samples - segment.counts[i]);
  }
  return left;
}

// The end of a segment: the position after the last sample of the source that is exhausted first.
struct SegmentEnd {
  int64_t position = unlimited_samples;
  int source = -1;  // of the segment
};

// `left` are the samples that the segment's sources have left.
SegmentEnd segment_end(const ProportionalOrder& order, const std::vector<int64_t>& left) {
  // The windows of the last samples show which sources can be first; only their exact positions
  // are searched for.
  int64_t earliest_end = max_position;
  std::vector<std::pair<int, int64_t>> last;  // source, begin of the window
  for (size_t i = 0; i < left.size(); ++i) {
    if (left[i] >= max_limit) continue;
    const auto source = static_cast<int>(i);
    const ItemWindow window = order.window_of({source, left[i] - 1});
    if (window.first >= earliest_end) continue;
    earliest_end = std::min(earliest_end, window.end);
    last.emplace_back(source, window.first);
  }
  SegmentEnd end;
  for (const auto& [source, first] : last) {
    if (first >= earliest_end) continue;
    const int64_t position = order.position_of({source, left[static_cast<size_t>(source)] - 1}) + 1;
    if (position < end.position) end = {position, source};
  }
  return end;
}

}  // namespace

MixtureOrder::MixtureOrder(const std::vector<MixtureSource>& sources, base::RngKey key,
                           int64_t positions) {
  check_sources(sources);
  MixtureSegment next{.counts = std::vector<int64_t>(sources.size(), 0)};
  while (true) {
    const std::vector<int64_t> left = choose_sources(sources, next);
    samples_ = next.begin;
    if (next.sources.empty()) {
      if (!segments_.empty()) return;
      throw base::ConfigError(fmt::format(
          "a mixture of {} sources, none with samples left and a weight above 0", sources.size()));
    }
    segments_.push_back(next);
    const auto bits = base::philox(key, static_cast<uint64_t>(orders_.size()));
    orders_.push_back(std::make_unique<ProportionalOrder>(shares_of(sources, next.sources),
                                                          uint64_t{bits[0]} << 32 | bits[1]));
    const SegmentEnd end = segment_end(*orders_.back(), left);
    samples_ = positions;
    if (end.source < 0 || end.position >= std::min(positions, max_position) - next.begin) return;
    const std::vector<int64_t> taken = orders_.back()->counts(end.position);
    for (size_t i = 0; i < taken.size(); ++i) {
      next.counts[static_cast<size_t>(next.sources[i])] += taken[i];
    }
    next.begin += end.position;
    next.exhausted = next.sources[static_cast<size_t>(end.source)];
  }
}

size_t MixtureOrder::segment_at(int64_t position) const {
  const auto after = std::upper_bound(
      segments_.begin(), segments_.end(), position,
      [](int64_t value, const MixtureSegment& segment) { return value < segment.begin; });
  return static_cast<size_t>(after - segments_.begin()) - 1;
}

SampleOrigin MixtureOrder::at(int64_t position) const {
  TRIREME_CHECK(position >= 0 && position < samples_, "position {} of {}", position, samples_);
  const size_t i = segment_at(position);
  const MixtureSegment& segment = segments_[i];
  const SampleOrigin origin = orders_[i]->at(position - segment.begin);
  const int source = segment.sources[static_cast<size_t>(origin.source)];
  return {source, segment.counts[static_cast<size_t>(source)] + origin.sample};
}

std::vector<int64_t> MixtureOrder::counts(int64_t position) const {
  TRIREME_CHECK(position >= 0 && position <= samples_, "position {} of {}", position, samples_);
  const size_t i = segment_at(position);
  const MixtureSegment& segment = segments_[i];
  std::vector<int64_t> all = segment.counts;
  const std::vector<int64_t> taken = orders_[i]->counts(position - segment.begin);
  for (size_t k = 0; k < taken.size(); ++k) {
    all[static_cast<size_t>(segment.sources[k])] += taken[k];
  }
  return all;
}

}  // namespace trireme::data
