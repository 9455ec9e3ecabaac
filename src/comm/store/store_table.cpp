// SPDX-License-Identifier: Apache-2.0
#include "comm/store/store_table.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "comm/store/store_wire.h"

namespace trireme::comm {
namespace {

// The memory of an entry beside its texts: nodes of the map, strings, times.
constexpr size_t entry_bytes = 160;

}  // namespace

const StoreTable::Entry* StoreTable::find(const std::string& key) const {
  const auto found = entries_.find(key);
  return found == entries_.end() ? nullptr : &found->second;
}

void StoreTable::set(const std::string& key, std::string value) {
  if (key.size() > max_key_bytes || value.size() > max_value_bytes) {
    throw base::IoError(
        fmt::format("a key of {} bytes with a value of {} bytes: at most {} and {} are allowed",
                    key.size(), value.size(), max_key_bytes, max_value_bytes));
  }
  const Entry* old = find(key);
  const size_t freed = old == nullptr ? 0 : entry_bytes + key.size() + old->value.size();
  const size_t taken = entry_bytes + key.size() + value.size();
  if (bytes_ - freed + taken > max_bytes_) {
    throw base::IoError(fmt::format("the store is full: {} bytes of {}", bytes_, max_bytes_));
  }
  set_own(key, std::move(value));
}

void StoreTable::set_own(const std::string& key, std::string value) {
  const Entry* old = find(key);
  if (old != nullptr) bytes_ -= entry_bytes + key.size() + old->value.size();
  bytes_ += entry_bytes + key.size() + value.size();
  entries_[key] = {std::move(value), Clock::now()};
}

void StoreTable::remove(const std::string& prefix) {
  std::erase_if(entries_, [&](const auto& entry) {
    const auto& [key, held] = entry;
    if (!key.starts_with(prefix)) return false;
    bytes_ -= entry_bytes + key.size() + held.value.size();
    return true;
  });
}

void StoreTable::remove_key(const std::string& key) {
  const Entry* old = find(key);
  if (old == nullptr) return;
  bytes_ -= entry_bytes + key.size() + old->value.size();
  entries_.erase(key);
}

int64_t StoreTable::add(const std::string& key, int64_t delta) {
  const Entry* old = find(key);
  const auto sum = old == nullptr ? 0 : integer_from(old->value);
  int64_t added = 0;
  if (!sum || __builtin_add_overflow(*sum, delta, &added)) {
    throw base::IoError(fmt::format("{} cannot be added to the value of '{}'", delta, key));
  }
  set(key, std::to_string(added));
  return added;
}

}  // namespace trireme::comm
