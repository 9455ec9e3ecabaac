// SPDX-License-Identifier: Apache-2.0
// reshard(): intersections of boxes. A wanted box is intersected with the saved ones in their order
// of preference; the remainder after each is again a list of boxes, until nothing is left.
#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "spec/parallel/shard.h"

namespace trireme::spec {
namespace {

struct Box {
  std::vector<int64_t> lo, hi;
};

// All saved pieces sorted by their first row, so that those that may intersect a box are found
// without a full scan.
class SavedIndex {
 public:
  explicit SavedIndex(const std::vector<std::vector<Piece>>& saved);

  struct Entry {
    int64_t lo = 0;
    int64_t reach = 0;  // the largest hi[0] of this entry and all before it
    int source = 0;
    const Piece* piece = nullptr;
    size_t order = 0;  // of preference: by source, then by place in its list
  };
  // Returns the pieces whose rows may intersect [rows.begin, rows.end), preferred ones first.
  std::vector<Entry> meeting(Range rows) const;

 private:
  std::vector<Entry> entries_;  // by lo
};

std::optional<Box> intersect(const Box& box, const Piece& piece);
void subtract(const Box& box, const Box& hole, std::vector<Box>& out);
Copy copy_of(const Box& box, const Piece& from, const Piece& to, int source);
void coalesce(Copy& copy);
std::vector<int64_t> row_major_strides(const Piece& piece);
int64_t offset_in(const Piece& piece, const std::vector<int64_t>& index,
                  const std::vector<int64_t>& strides);
std::string to_string(const Box& box);

}  // namespace

std::vector<Copy> reshard(const std::vector<std::vector<Piece>>& saved,
                          const std::vector<Piece>& wanted) {
  const SavedIndex index(saved);
  std::vector<Copy> copies;
  std::vector<Box> missing, still_missing;
  for (const Piece& want : wanted) {
    TRIREME_CHECK(!want.lo.empty() && want.lo.size() == want.hi.size(),
                  "a wanted piece has {} and {} dimensions", want.lo.size(), want.hi.size());
    missing.assign(1, Box{want.lo, want.hi});
    for (const SavedIndex::Entry& entry : index.meeting({want.lo[0], want.hi[0]})) {
      if (missing.empty()) break;
      still_missing.clear();
      for (const Box& box : missing) {
        const std::optional<Box> common = intersect(box, *entry.piece);
        if (!common) {
          still_missing.push_back(box);
          continue;
        }
        copies.push_back(copy_of(*common, *entry.piece, want, entry.source));
        subtract(box, *common, still_missing);
      }
      std::swap(missing, still_missing);
    }
    if (!missing.empty()) {
      throw base::ConfigError(
          fmt::format("the box {}, a part of the wanted {}, is in none of the {} saved lists",
                      to_string(missing.front()), to_string({want.lo, want.hi}), saved.size()));
    }
  }
  return copies;
}

namespace {

SavedIndex::SavedIndex(const std::vector<std::vector<Piece>>& saved) {
  size_t count = 0;
  for (const std::vector<Piece>& list : saved) count += list.size();
  entries_.reserve(count);
  for (size_t source = 0; source < saved.size(); ++source) {
    for (const Piece& piece : saved[source]) {
      TRIREME_CHECK(!piece.lo.empty() && piece.lo.size() == piece.hi.size(),
                    "saved list {} has a piece of {} and {} dimensions", source, piece.lo.size(),
                    piece.hi.size());
      entries_.push_back(
          {piece.lo[0], piece.hi[0], static_cast<int>(source), &piece, entries_.size()});
    }
  }
  std::ranges::stable_sort(entries_, {}, &Entry::lo);
  for (size_t i = 1; i < entries_.size(); ++i) {
    entries_[i].reach = std::max(entries_[i].reach, entries_[i - 1].reach);
  }
}

std::vector<SavedIndex::Entry> SavedIndex::meeting(Range rows) const {
  const auto begin = std::ranges::upper_bound(entries_, rows.begin, {}, &Entry::reach);
  const auto end = std::ranges::lower_bound(entries_, rows.end, {}, &Entry::lo);
  std::vector<Entry> found;
  for (auto entry = begin; entry < end; ++entry) {
    if (entry->piece->hi[0] > rows.begin) found.push_back(*entry);
  }
  std::ranges::sort(found, {}, &Entry::order);
  return found;
}

std::optional<Box> intersect(const Box& box, const Piece& piece) {
  const size_t ndim = box.lo.size();
  TRIREME_CHECK(piece.lo.size() == ndim, "a saved piece has {} dimensions, a wanted one {}",
                piece.lo.size(), ndim);
  for (size_t dim = 0; dim < ndim; ++dim) {
    if (std::max(box.lo[dim], piece.lo[dim]) >= std::min(box.hi[dim], piece.hi[dim])) return {};
  }
  Box common = box;
  for (size_t dim = 0; dim < ndim; ++dim) {
    common.lo[dim] = std::max(box.lo[dim], piece.lo[dim]);
    common.hi[dim] = std::min(box.hi[dim], piece.hi[dim]);
  }
  return common;
}

// Appends `box` without `hole` as at most 2 ndim disjoint boxes. REQUIRES: hole lies within box.
void subtract(const Box& box, const Box& hole, std::vector<Box>& out) {
  Box rest = box;
  for (size_t dim = 0; dim < box.lo.size(); ++dim) {
    if (rest.lo[dim] < hole.lo[dim]) {
      out.push_back(rest);
      out.back().hi[dim] = hole.lo[dim];
    }
    if (hole.hi[dim] < rest.hi[dim]) {
      out.push_back(rest);
      out.back().lo[dim] = hole.hi[dim];
    }
    rest.lo[dim] = hole.lo[dim];
    rest.hi[dim] = hole.hi[dim];
  }
}

Copy copy_of(const Box& box, const Piece& from, const Piece& to, int source) {
  Copy copy;
  copy.source = source;
  copy.source_stride = row_major_strides(from);
  copy.target_stride = row_major_strides(to);
  copy.source_offset = offset_in(from, box.lo, copy.source_stride);
  copy.target_offset = offset_in(to, box.lo, copy.target_stride);
  for (size_t dim = 0; dim < box.lo.size(); ++dim) copy.count.push_back(box.hi[dim] - box.lo[dim]);
  coalesce(copy);
  return copy;
}

// Joins dimensions that are contiguous in both places, and drops outer ones of length 1, so that
// runs are as long as possible.
void coalesce(Copy& copy) {
  size_t kept = copy.count.size() - 1;  // outermost dimension of the result so far, at the back
  for (size_t dim = kept; dim-- > 0;) {
    if (copy.count[dim] == 1) continue;
    const bool runs_on = copy.source_stride[dim] == copy.count[kept] * copy.source_stride[kept] &&
                         copy.target_stride[dim] == copy.count[kept] * copy.target_stride[kept];
    if (runs_on) {
      copy.count[kept] *= copy.count[dim];
      continue;
    }
    --kept;
    copy.count[kept] = copy.count[dim];
    copy.source_stride[kept] = copy.source_stride[dim];
    copy.target_stride[kept] = copy.target_stride[dim];
  }
  for (auto* values : {&copy.count, &copy.source_stride, &copy.target_stride}) {
    values->erase(values->begin(), values->begin() + static_cast<std::ptrdiff_t>(kept));
  }
}

std::vector<int64_t> row_major_strides(const Piece& piece) {
  std::vector<int64_t> strides(piece.lo.size());
  int64_t stride = 1;
  for (size_t dim = strides.size(); dim-- > 0;) {
    strides[dim] = stride;
    stride *= piece.hi[dim] - piece.lo[dim];
  }
  return strides;
}

int64_t offset_in(const Piece& piece, const std::vector<int64_t>& index,
                  const std::vector<int64_t>& strides) {
  int64_t offset = piece.local;
  for (size_t dim = 0; dim < index.size(); ++dim) {
    offset += (index[dim] - piece.lo[dim]) * strides[dim];
  }
  return offset;
}

// "[0:4, 3:5]"
std::string to_string(const Box& box) {
  std::string text = "[";
  for (size_t dim = 0; dim < box.lo.size(); ++dim) {
    text += fmt::format("{}{}:{}", dim == 0 ? "" : ", ", box.lo[dim], box.hi[dim]);
  }
  return text + "]";
}

}  // namespace
}  // namespace trireme::spec
