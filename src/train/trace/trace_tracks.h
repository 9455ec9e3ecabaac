// SPDX-License-Identifier: Apache-2.0
// Tracks of a Chrome trace: the slices of one stream of one rank, or of its host. Slices of a track
// nest or are apart, in whole nanoseconds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/trace/clock_alignment.h"
#include "train/trace/rank_trace.h"

namespace trireme::train {

struct Slice {
  std::string name;
  const char* category = "";  // empty: the span's
  int depth = 0;              // slices around it
  int64_t begin_ns = 0, end_ns = 0;
  int64_t span = -1;  // index in the rank's trace; -1: none
};

struct Track {
  int rank = 0;
  int number = 0;  // in its rank
  std::string name;
  std::vector<Slice> slices;  // a slice is followed by those inside of it
};

// The track of the host has this number; compute has the one before, other streams those behind.
constexpr int compute_track = 1, host_track = 2;
constexpr int track_of_stream(int stream) { return stream == 0 ? compute_track : stream + 2; }

// Makes slices nest, if times are off by the errors of clocks: in the order of the list, a slice
// begins after the one before it at its depth, and ends before the one around it. A slice ends at
// least one nanosecond before the next of its track may begin: readers that add time and duration
// as floating-point numbers (speedscope does) would otherwise compute an end after the next begin.
void nest(std::vector<Slice>&);

// Returns the tracks of one rank, compute and the host first. Times are since `origin_ns` of the
// first rank's clock. A stream with no span has no slices.
std::vector<Track> tracks_of(const RankTrace&, const ClockOffset&, int64_t origin_ns);

}  // namespace trireme::train
