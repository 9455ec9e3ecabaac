// SPDX-License-Identifier: Apache-2.0
// pieces() walks a flat range of a compute copy dimension by dimension: an incomplete first row,
// all complete rows as one box, an incomplete last row; incomplete rows are treated the same way
// one dimension further in. That is at most 2 ndim - 1 boxes, times the strips of a cut inside
// segments.
#include "spec/parallel/shard.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"
#include "base/error.h"
#include "base/shape.h"

namespace trireme::spec {
namespace {

// Maps the local indices [local, local + length) of one dimension to the global ones [global,
// global
// + length).
struct Strip {
  int64_t local = 0, global = 0, length = 0;
};

// A compute copy, and the positions of its indices in the whole parameter.
struct ComputeCopy {
  std::vector<std::vector<Strip>> strips;  // by dimension, ascending, none empty; then padding
  std::vector<int64_t> row_elements;       // by dimension: elements under one index of it
  size_t one_box_from = 0;                 // from this dimension on there is one strip each
};

void check_structure(const ShardSpec& spec);
const Cut* cut_of(const ShardSpec& spec, size_t dim);
std::vector<int64_t> segments_of(const Cut& cut, int64_t extent);
std::vector<Strip> strips_of(const Cut& cut, int64_t extent, const Sizes& sizes,
                             const Coord& coord);
ComputeCopy compute_copy(const ShardSpec& spec, const Sizes& sizes, const Coord& coord);
void cover(const ComputeCopy& copy, size_t dim, Range flat, Piece& at, std::vector<Piece>& out);
void emit_rows(const ComputeCopy& copy, size_t dim, Range rows, Piece& at, std::vector<Piece>& out);
int64_t end_of(const std::vector<Strip>& strips);

int64_t share_of(int64_t extent, int parts);
int64_t product(const std::vector<int64_t>& values);
std::string grouped(int64_t value);

}  // namespace

std::vector<int64_t> local_shape(const ShardSpec& spec, const Sizes& sizes) {
  check_structure(spec);
  std::vector<int64_t> local = spec.shape;
  for (const Cut& cut : spec.cuts) {
    const auto dim = static_cast<size_t>(cut.dim);
    const int parts = sizes[cut.axis];
    TRIREME_CHECK(parts >= 1, "{}: {} = {}", spec.name, name_of(cut.axis), parts);
    if (cut.grain > 0) {
      local[dim] = base::round_up(share_of(spec.shape[dim], parts), cut.grain);
      continue;
    }
    const std::vector<int64_t> segments = segments_of(cut, spec.shape[dim]);
    for (size_t segment = 0; segment < segments.size(); ++segment) {
      if (segments[segment] % parts == 0) continue;
      throw base::ConfigError(fmt::format(
          "{}: {}dimension {} has {} {}, which do not divide by {} = {}", spec.name,
          segments.size() > 1 ? fmt::format("segment {} of ", segment) : "", dim,
          grouped(segments[segment]), dim == 0 ? "rows" : "columns", name_of(cut.axis), parts));
    }
    local[dim] /= parts;
  }
  return local;
}

Range local_range(const Cut& cut, int64_t extent, const Sizes& sizes, const Coord& coord) {
  TRIREME_CHECK(segments_of(cut, extent).size() == 1, "{} segments", cut.segments.size());
  const int64_t share = share_of(extent, sizes[cut.axis]);
  return {std::min(coord[cut.axis] * share, extent),
          std::min((coord[cut.axis] + 1) * share, extent)};
}

int64_t local_elements(const ShardSpec& spec, const Sizes& sizes) {
  return product(local_shape(spec, sizes));
}

std::vector<Piece> pieces(const ShardSpec& spec, const Sizes& sizes, const Coord& coord,
                          Range flat) {
  const int64_t elements = local_elements(spec, sizes);
  TRIREME_CHECK(0 <= flat.begin && flat.begin <= flat.end && flat.end <= elements,
                "{}: flat range [{}, {}) of {} elements", spec.name, flat.begin, flat.end,
                elements);
  std::vector<Piece> out;
  Piece at{std::vector<int64_t>(spec.shape.size()), std::vector<int64_t>(spec.shape.size()), 0};
  cover(compute_copy(spec, sizes, coord), 0, flat, at, out);
  TRIREME_CHECK(at.local == flat.end - flat.begin, "{}: pieces hold {} elements, not {}", spec.name,
                at.local, flat.end - flat.begin);
  return out;
}

namespace {

// Code writes specs, not users: an error in one is a bug.
void check_structure(const ShardSpec& spec) {
  TRIREME_CHECK(!spec.shape.empty(), "{}: no dimensions", spec.name);
  for (const int64_t extent : spec.shape) {
    TRIREME_CHECK(extent > 0, "{}: a dimension of {}", spec.name, extent);
  }
  for (size_t i = 0; i < spec.cuts.size(); ++i) {
    const Cut& cut = spec.cuts[i];
    TRIREME_CHECK(cut.dim >= 0 && cut.dim < std::ssize(spec.shape), "{}: a cut of dimension {}",
                  spec.name, cut.dim);
    for (size_t j = 0; j < i; ++j) {
      TRIREME_CHECK(spec.cuts[j].dim != cut.dim, "{}: dimension {} is cut twice", spec.name,
                    cut.dim);
      TRIREME_CHECK(spec.cuts[j].axis != cut.axis, "{}: two dimensions are cut over {}", spec.name,
                    name_of(cut.axis));
    }
    TRIREME_CHECK(cut.grain == 0 || (cut.grain > 0 && cut.dim == 0 && cut.segments.size() <= 1),
                  "{}: a grain of {} for {} segments of dimension {}", spec.name, cut.grain,
                  cut.segments.size(), cut.dim);
    int64_t sum = 0;
    for (const int64_t length : segments_of(cut, spec.shape[static_cast<size_t>(cut.dim)])) {
      TRIREME_CHECK(length >= 0, "{}: a segment of {}", spec.name, length);
      sum += length;
    }
    TRIREME_CHECK(sum == spec.shape[static_cast<size_t>(cut.dim)],
                  "{}: segments of dimension {} add up to {}", spec.name, cut.dim, sum);
  }
}

const Cut* cut_of(const ShardSpec& spec, size_t dim) {
  const auto found = std::ranges::find(spec.cuts, static_cast<int>(dim), &Cut::dim);
  return found == spec.cuts.end() ? nullptr : &*found;
}

std::vector<int64_t> segments_of(const Cut& cut, int64_t extent) {
  return cut.segments.empty() ? std::vector<int64_t>{extent} : cut.segments;
}

// Strips that are adjacent in the whole parameter are joined, so a cut over one rank makes one
// strip.
std::vector<Strip> strips_of(const Cut& cut, int64_t extent, const Sizes& sizes,
                             const Coord& coord) {
  const int parts = sizes[cut.axis], part = coord[cut.axis];
  TRIREME_CHECK(0 <= part && part < parts, "coordinate {} on {} of size {}", part,
                name_of(cut.axis), parts);
  if (cut.grain > 0) {
    const Range held = local_range(cut, extent, sizes, coord);
    if (held.begin == held.end) return {};
    return {{0, held.begin, held.end - held.begin}};
  }
  std::vector<Strip> strips;
  int64_t local = 0, segment_begin = 0;
  for (const int64_t segment : segments_of(cut, extent)) {
    const int64_t length = segment / parts;
    const int64_t global = segment_begin + part * length;
    if (length > 0 && !strips.empty() && strips.back().global + strips.back().length == global) {
      strips.back().length += length;
    } else if (length > 0) {
      strips.push_back({local, global, length});
    }
    local += length;
    segment_begin += segment;
  }
  return strips;
}

ComputeCopy compute_copy(const ShardSpec& spec, const Sizes& sizes, const Coord& coord) {
  ComputeCopy copy;
  const size_t ndim = spec.shape.size();
  const std::vector<int64_t> local = local_shape(spec, sizes);
  copy.strips.resize(ndim);
  copy.row_elements.resize(ndim);
  int64_t elements = 1;
  for (size_t dim = ndim; dim-- > 0;) {
    const Cut* cut = cut_of(spec, dim);
    copy.strips[dim] = cut == nullptr ? std::vector<Strip>{{0, 0, spec.shape[dim]}}
                                      : strips_of(*cut, spec.shape[dim], sizes, coord);
    copy.row_elements[dim] = elements;
    elements *= local[dim];
    if (copy.strips[dim].size() > 1) copy.one_box_from = std::max(copy.one_box_from, dim + 1);
  }
  return copy;
}

// Covers the elements `flat` of the block spanned by the dimensions from `dim` on. `at` holds the
// box chosen in the dimensions before, and in `local` the number of elements covered so far.
void cover(const ComputeCopy& copy, size_t dim, Range flat, Piece& at, std::vector<Piece>& out) {
  const int64_t row = copy.row_elements[dim];
  const bool rows_are_boxes = copy.one_box_from <= dim + 1;
  for (int64_t next = flat.begin; next < flat.end;) {
    const int64_t index = next / row;
    if (rows_are_boxes && next == index * row && flat.end / row > index) {
      emit_rows(copy, dim, {index, flat.end / row}, at, out);
      next = flat.end / row * row;
      continue;
    }
    const int64_t end = std::min(flat.end, (index + 1) * row);
    const auto& strips = copy.strips[dim];
    if (index >= end_of(strips)) {  // padding
      at.local += end - next;
      next = end;
      continue;
    }
    const auto strip = std::prev(std::ranges::upper_bound(strips, index, {}, &Strip::local));
    at.lo[dim] = strip->global + index - strip->local;
    at.hi[dim] = at.lo[dim] + 1;
    cover(copy, dim + 1, {next - index * row, end - index * row}, at, out);
    next = end;
  }
}

// Adds one box for each strip of `dim` that intersects `rows`; whole in the dimensions after it.
void emit_rows(const ComputeCopy& copy, size_t dim, Range rows, Piece& at,
               std::vector<Piece>& out) {
  for (size_t inner = dim + 1; inner < copy.strips.size(); ++inner) {
    const Strip& strip = copy.strips[inner].front();
    at.lo[inner] = strip.global;
    at.hi[inner] = strip.global + strip.length;
  }
  for (const Strip& strip : copy.strips[dim]) {
    const int64_t begin = std::max(rows.begin, strip.local);
    const int64_t end = std::min(rows.end, strip.local + strip.length);
    if (begin >= end) continue;
    at.lo[dim] = strip.global + begin - strip.local;
    at.hi[dim] = strip.global + end - strip.local;
    out.push_back(at);
    at.local += (end - begin) * copy.row_elements[dim];
  }
  const int64_t padding = rows.end - std::max(rows.begin, end_of(copy.strips[dim]));
  at.local += std::max<int64_t>(padding, 0) * copy.row_elements[dim];
}

int64_t end_of(const std::vector<Strip>& strips) {
  return strips.empty() ? 0 : strips.back().local + strips.back().length;
}

// Returns the largest of `parts` parts that are as equal as possible.
int64_t share_of(int64_t extent, int parts) { return (extent + parts - 1) / parts; }

int64_t product(const std::vector<int64_t>& values) {
  int64_t result = 1;
  for (const int64_t value : values) result *= value;
  return result;
}

// "4,608". REQUIRES: value >= 0.
std::string grouped(int64_t value) {
  std::string digits = std::to_string(value);
  for (size_t from_end = 3; from_end < digits.size(); from_end += 4) {
    digits.insert(digits.size() - from_end, 1, ',');
  }
  return digits;
}

}  // namespace
}  // namespace trireme::spec
