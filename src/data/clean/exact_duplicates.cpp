// SPDX-License-Identifier: Apache-2.0
#include "data/clean/exact_duplicates.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "data/clean/hash_sort.h"
#include "data/clean/words.h"

namespace trireme::data {
namespace {

struct HashedDocument {
  TextHash hash;
  uint32_t document = 0;
  auto operator<=>(const HashedDocument&) const = default;
};

TextHash hash_of_bytes(std::string_view bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.high64, hash.low64};
}

}  // namespace

TextHash text_hash(std::span<const std::string_view> parts, bool normalized) {
  std::string buffer, part_bytes;
  if (parts.size() == 1 && !normalized) return hash_of_bytes(parts.front());
  for (const std::string_view part : parts) {
    if (normalized) {
      normalize(part, part_bytes);
    } else {
      part_bytes.assign(part);
    }
    buffer += part_bytes;
    // No text has this byte: the border between the parts counts.
    if (parts.size() > 1) buffer += '\xff';
  }
  return hash_of_bytes(buffer);
}

void find_exact_duplicates(
    base::ThreadPool& pool, const HashVisit& visit,
    const std::function<void(uint32_t document, uint32_t first)>& duplicate) {
  const auto sorted = sort_by_hash<HashedDocument>(pool, [&](const auto& emit) {
    visit([&](uint32_t document, TextHash hash) { emit(hash.high, {hash, document}); });
  });
  for (size_t i = 1, first = 0; i < sorted.items.size(); ++i) {
    if (sorted.items[i].hash != sorted.items[first].hash) {
      first = i;
    } else {
      duplicate(sorted.items[i].document, sorted.items[first].document);
    }
  }
}

}  // namespace trireme::data
