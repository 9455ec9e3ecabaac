// SPDX-License-Identifier: Apache-2.0
#include "board/series/buckets.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/check.h"

namespace trireme::board {
namespace {

// Points in the order of an axis.
class Points {
 public:
  Points(const MetricStore& store, int tag, Axis axis) : store_(store), axis_(axis) {
    const MetricTrack& track = store.track(tag);
    rows_ = &track.rows;
    values_ = &track.values;
    if (track.is_ascending[static_cast<size_t>(axis)]) return;
    ordered_ = store.reordered(tag, axis);
    rows_ = &ordered_->rows;
    values_ = &ordered_->values;
  }

  size_t size() const { return rows_->size(); }
  double x(size_t i) const { return store_.x_of((*rows_)[i], axis_); }
  double value(size_t i) const { return (*values_)[i]; }
  Extent extent(size_t begin, size_t end) const { return values_->extent(begin, end); }

  // Returns the first index from `begin` on whose x fails `is_before`, which is true for a prefix.
  // Looks near `guess` first.
  template <typename Before>
  size_t partition(size_t begin, size_t guess, const Before& is_before) const {
    size_t low = begin, high = size();
    size_t width = 8;
    guess = std::clamp(guess, low, high);
    if (guess < high && is_before(x(guess))) {
      low = guess + 1;
      while (low + width < high && is_before(x(low + width))) {
        low += width + 1;
        width *= 4;
      }
      high = std::min(high, low + width);
    } else {
      high = guess;
      while (high > low + width && !is_before(x(high - width))) {
        high -= width;
        width *= 4;
      }
      low = high > low + width ? high - width : low;
    }
    while (low < high) {
      const size_t middle = low + (high - low) / 2;
      if (is_before(x(middle))) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

 private:
  const MetricStore& store_;
  const Axis axis_;
  const std::vector<uint32_t>* rows_;
  const Pyramid* values_;
  std::shared_ptr<const MetricStore::Ordered> ordered_;
};

Bucket bucket_of(const Points& points, size_t begin, size_t end) {
  return {.first_x = points.x(begin),
          .last_x = points.x(end - 1),
          .last = points.value(end - 1),
          .extent = points.extent(begin, end)};
}

template <typename Get>
void append_array(std::string& out, const char* name, const std::vector<Bucket>& buckets,
                  const Get& append) {
  out += fmt::format("\"{}\":[", name);
  for (size_t i = 0; i < buckets.size(); ++i) {
    if (i > 0) out += ',';
    append(buckets[i]);
  }
  out += ']';
}

}  // namespace

std::vector<Bucket> buckets_of(const MetricStore& store, int tag, const BucketQuery& query) {
  TRIREME_CHECK(query.px >= 1, "{} columns", query.px);
  const Points points(store, tag, query.axis);
  const size_t begin = points.partition(0, 0, [&](double x) { return x < query.from; });
  const size_t end =
      points.partition(begin, points.size(), [&](double x) { return x <= query.to; });
  std::vector<Bucket> buckets;
  if (begin >= end) return buckets;
  if (end - begin <= static_cast<size_t>(query.px)) {
    for (size_t i = begin; i < end; ++i) buckets.push_back(bucket_of(points, i, i + 1));
    return buckets;
  }
  // The columns divide the range that was asked for, as far as it has points.
  const double left = std::max(query.from, points.x(begin));
  const double right = std::min(query.to, points.x(end - 1));
  const double columns_per_x = right > left ? query.px / (right - left) : 0;
  const auto column_of = [&](double x) {
    return std::min(static_cast<double>(query.px - 1), std::floor((x - left) * columns_per_x));
  };
  const size_t usual = (end - begin) / static_cast<size_t>(query.px);
  for (size_t at = begin; at < end;) {
    const double column = column_of(points.x(at));
    const size_t next = std::min(end, points.partition(at + 1, at + usual, [&](double x) {
      return column_of(x) <= column;
    }));
    buckets.push_back(bucket_of(points, at, next));
    at = next;
  }
  return buckets;
}

void append_number(std::string& out, double value) {
  if (std::isnan(value)) {
    out += "\"NaN\"";
  } else if (std::isinf(value)) {
    out += value > 0 ? "\"Infinity\"" : "\"-Infinity\"";
  } else if (value == std::floor(value) && std::abs(value) < 1e15) {
    fmt::format_to(std::back_inserter(out), "{}", static_cast<int64_t>(value));
  } else {
    fmt::format_to(std::back_inserter(out), "{}", value);
  }
}

void append_json(std::string& out, const std::vector<Bucket>& buckets) {
  const auto number_or_null = [&](const Bucket& bucket, double value) {
    if (bucket.extent.finite > 0) {
      append_number(out, value);
    } else {
      out += "null";
    }
  };
  out += '{';
  append_array(out, "x", buckets, [&](const Bucket& b) { append_number(out, b.first_x); });
  out += ',';
  append_array(out, "end", buckets, [&](const Bucket& b) { append_number(out, b.last_x); });
  out += ',';
  append_array(out, "min", buckets, [&](const Bucket& b) { number_or_null(b, b.extent.min); });
  out += ',';
  append_array(out, "max", buckets, [&](const Bucket& b) { number_or_null(b, b.extent.max); });
  out += ',';
  append_array(out, "last", buckets, [&](const Bucket& b) { append_number(out, b.last); });
  out += ',';
  append_array(out, "mean", buckets, [&](const Bucket& b) {
    number_or_null(b, b.extent.sum / static_cast<double>(std::max<int64_t>(1, b.extent.finite)));
  });
  out += ',';
  append_array(out, "bad", buckets, [&](const Bucket& b) {
    fmt::format_to(std::back_inserter(out), "{}", b.extent.bad);
  });
  out += '}';
}

}  // namespace trireme::board
