// SPDX-License-Identifier: Apache-2.0
// XXH3-128: the hash that guards every byte of a checkpoint. It detects damage, not tampering.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace trireme::ckpt {

struct Hash {
  uint64_t high = 0, low = 0;
  bool operator==(const Hash&) const = default;
};

Hash hash_of(std::span<const std::byte> bytes);
Hash hash_of(std::string_view text);

// Computes the same hash from consecutive parts.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(Hasher&&) noexcept;
  Hasher& operator=(Hasher&&) noexcept;
  void add(std::span<const std::byte> bytes);
  Hash hash() const;  // of all bytes so far

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Returns 32 digits, 0-9 and a-f: the canonical form of xxHash.
std::string to_hex(const Hash&);
// Returns nothing unless `text` has the form that to_hex() writes.
std::optional<Hash> hash_from_hex(std::string_view text);

}  // namespace trireme::ckpt
