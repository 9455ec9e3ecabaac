// SPDX-License-Identifier: Apache-2.0
#include "base/system/mapped_ranges.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>

#include "base/system/line_writer.h"

namespace trireme::base {
namespace {

// Entries are reused and never freed, because a signal may arrive at any time.
struct Entry {
  std::atomic<uintptr_t> begin{0};  // 0: free
  std::atomic<size_t> bytes{0};
  std::string file;  // changes only while the entry is free
  Entry* next = nullptr;
};

std::atomic<Entry*> first_entry{nullptr};

struct Entries {
  std::mutex mutex;  // guards `all` and the allocation of entries
  std::deque<Entry> all;
};
// Never destroyed: mappings of static objects may end after any destructor here.
Entries& entries() {
  static Entries& instance = *std::make_unique<Entries>().release();
  return instance;
}

}  // namespace

MappedRange::MappedRange(std::span<const std::byte> bytes, const std::string& file) {
  Entries& list = entries();
  const std::scoped_lock lock(list.mutex);
  auto found = std::find_if(list.all.begin(), list.all.end(),
                            [](const Entry& entry) { return entry.begin.load() == 0; });
  if (found == list.all.end()) {
    Entry& added = list.all.emplace_back();
    added.next = first_entry.load();
    first_entry.store(&added);
    found = list.all.end() - 1;
  }
  found->file = file;
  found->bytes.store(bytes.size());
  found->begin.store(reinterpret_cast<uintptr_t>(bytes.data()));
  entry_.reset(&*found);
}

void MappedRange::Leave::operator()(void* entry) const noexcept {
  static_cast<Entry*>(entry)->begin.store(0);
}

size_t describe_mapping_fault(const void* address, std::span<char> text) noexcept {
  const auto at = reinterpret_cast<uintptr_t>(address);
  for (const Entry* entry = first_entry.load(); entry != nullptr; entry = entry->next) {
    const uintptr_t begin = entry->begin.load();
    const size_t bytes = entry->bytes.load();
    if (begin == 0 || at < begin || at - begin >= bytes) continue;
    LineWriter line(text);
    line.add(entry->file);
    line.add(": byte ");
    line.add_number(at - begin);
    line.add(" of ");
    line.add_number(bytes);
    line.add(
        " cannot be read any more: the file was truncated while it was in use, or its device "
        "reports an I/O error");
    return line.size();
  }
  return 0;
}

}  // namespace trireme::base
