// SPDX-License-Identifier: Apache-2.0
// XXH3-128 of bytes that arrive in parts.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace trireme::data {

// Detects damage and changes; it does not protect against forgery.
class ContentHash {
 public:
  ContentHash();
  ~ContentHash();
  ContentHash(ContentHash&&) noexcept;
  ContentHash& operator=(ContentHash&&) noexcept;

  void add(std::span<const std::byte> bytes);
  // Returns 32 digits 0-9a-f (high half first) of the bytes so far.
  std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme::data
