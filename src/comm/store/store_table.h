// SPDX-License-Identifier: Apache-2.0
// StoreTable: the keys and values of a store and when each was set, within a limit of memory.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <unordered_map>

namespace trireme::comm {

class StoreTable {
 public:
  using Clock = std::chrono::steady_clock;
  struct Entry {
    std::string value;
    Clock::time_point set_at;
  };
  static constexpr size_t max_key_bytes = size_t{4} << 10, max_value_bytes = size_t{4} << 20;

  explicit StoreTable(size_t max_bytes) : max_bytes_(max_bytes) {}

  // Returns null if there is no such key.
  const Entry* find(const std::string& key) const;
  bool contains(const std::string& key) const { return find(key) != nullptr; }

  // Throws IoError if the key, the value or the table would be larger than allowed.
  void set(const std::string& key, std::string value);
  // Has no limits: for the few short keys that the store itself sets, and for those of a server
  // before this one.
  void set_own(const std::string& key, std::string value);
  // Adds to a counter that starts at 0 and returns the sum. Throws IoError if the value is not an
  // integer, if the sum does not fit, and as set() does.
  int64_t add(const std::string& key, int64_t delta);

  // Removes all keys that begin with this.
  void remove(const std::string& prefix);
  void remove_key(const std::string& key);

  size_t bytes() const { return bytes_; }
  const std::unordered_map<std::string, Entry>& entries() const { return entries_; }

 private:
  const size_t max_bytes_;
  size_t bytes_ = 0;
  std::unordered_map<std::string, Entry> entries_;
};

}  // namespace trireme::comm
