// SPDX-License-Identifier: Apache-2.0
// Buckets: what a chart of `px` pixel columns needs of a series. Every column that has points gets
// the minimum and maximum of all of them; if there are no more points than columns, every point is
// a bucket.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "board/series/metric_store.h"

namespace trireme::board {

struct BucketQuery {
  Axis axis = Axis::step;
  double from = -std::numeric_limits<double>::infinity();
  double to = std::numeric_limits<double>::infinity();  // inclusive
  int px = 1000;                                        // columns; at least 1
};

struct Bucket {
  double first_x = 0, last_x = 0;
  double last = 0;  // value; may be NaN or infinite
  Extent extent;
  bool operator==(const Bucket&) const = default;
};

// In ascending order of x; none is empty.
std::vector<Bucket> buckets_of(const MetricStore& store, int tag, const BucketQuery& query);

// Appends a number as JSON, with the fewest digits that give the same double; NaN and infinities
// as the texts "NaN", "Infinity" and "-Infinity".
void append_number(std::string& out, double value);

// Appends {"x":[...],"end":[...],"min":[...],...}, as GET /api/run/ID/series has it for one tag.
void append_json(std::string& out, const std::vector<Bucket>& buckets);

}  // namespace trireme::board
