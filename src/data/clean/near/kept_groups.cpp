// SPDX-License-Identifier: Apache-2.0
#include "data/clean/near/kept_groups.h"

#include "base/check.h"
#include "data/clean/storage/column_file.h"

namespace trireme::data {

KeptGroups::KeptGroups(std::span<const uint32_t> counts) {
  for (const uint32_t count : counts) heads_.emplace_back(count, none);
}

void KeptGroups::add(std::span<const uint32_t> groups, size_t row, uint32_t document) {
  TRIREME_CHECK(document < chained, "document {}", document);
  for (size_t band = 0; band < heads_.size(); ++band) {
    const uint32_t group = groups[band * chunk_rows + row];
    if (group == 0) continue;
    uint32_t& head = heads_[band][group - 1];
    if (head == none) {
      head = document;
      continue;
    }
    TRIREME_CHECK(links_.size() < chained - 1, "{} links", links_.size());
    links_.push_back({document, head});
    head = chained | static_cast<uint32_t>(links_.size() - 1);
  }
}

void KeptGroups::append_members(std::span<const uint32_t> groups, size_t row, uint32_t min_document,
                                std::vector<uint32_t>& found) const {
  for (size_t band = 0; band < heads_.size(); ++band) {
    const uint32_t group = groups[band * chunk_rows + row];
    if (group == 0) continue;
    uint32_t at = heads_[band][group - 1];
    while (at != none) {
      const bool is_link = (at & chained) != 0;
      const uint32_t document = is_link ? links_[at & ~chained].document : at;
      if (document < min_document) break;
      found.push_back(document);
      at = is_link ? links_[at & ~chained].next : none;
    }
  }
}

}  // namespace trireme::data
