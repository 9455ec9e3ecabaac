// SPDX-License-Identifier: Apache-2.0
// Which kept documents are in which group of which band, while near-duplicates are decided.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

namespace trireme::data {

// Most groups have one kept document, which takes 4 bytes; further ones are chained.
class KeptGroups {
 public:
  // `counts`: groups of every band.
  explicit KeptGroups(std::span<const uint32_t> counts);

  // `groups` is a chunk of ColumnFile<uint32_t>; row `row` has the groups of the document, from 1
  // or 0 if it has none. REQUIRES: documents are added in rising order and are below 2^31.
  void add(std::span<const uint32_t> groups, size_t row, uint32_t document);
  // Appends the kept documents of the row's groups that are `min_document` or above; a document
  // that shares several groups occurs several times. Usable from many threads while no document is
  // added.
  void append_members(std::span<const uint32_t> groups, size_t row, uint32_t min_document,
                      std::vector<uint32_t>& found) const;

 private:
  static constexpr uint32_t none = ~0U, chained = 1U << 31;
  struct Link {
    uint32_t document, next;  // next: as in heads_
  };

  // By band and group: none, a document, or `chained` with an index of links_.
  std::vector<std::vector<uint32_t>> heads_;
  std::deque<Link> links_;  // newest document first
};

}  // namespace trireme::data
