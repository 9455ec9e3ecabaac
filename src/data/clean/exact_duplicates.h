// SPDX-License-Identifier: Apache-2.0
// Documents with equal texts, by 128-bit hashes: two different texts of 10^9 have equal hashes with
// a probability of 10^-21.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/system/threads.h"

namespace trireme::data {

struct TextHash {
  uint64_t high = 0, low = 0;
  auto operator<=>(const TextHash&) const = default;
};

// Returns the XXH3-128 of a text, or of a prompt and its completion. With `normalized`, texts that
// differ in case and white space only have equal hashes (normalize()). Used from any thread.
TextHash text_hash(std::span<const std::string_view> parts, bool normalized);

// Reads hashes in the order of documents: calls its argument for every document that takes part.
using HashVisit = std::function<void(const std::function<void(uint32_t document, TextHash)>&)>;

// Calls duplicate(document, first) for every document whose hash an earlier one has; `first` is the
// earliest. Calls come from the caller's thread, in an order that depends on the hashes only. Takes
// 24 bytes a document. `visit` is called twice.
void find_exact_duplicates(base::ThreadPool& pool, const HashVisit& visit,
                           const std::function<void(uint32_t document, uint32_t first)>& duplicate);

}  // namespace trireme::data
