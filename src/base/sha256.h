// SPDX-License-Identifier: Apache-2.0
// SHA-256 (FIPS 180-4) of bytes: the fingerprint that shows "the same bits" in tests and reports.
// Not for security.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace trireme::base {

class Sha256 {
 public:
  void update(std::span<const std::byte> bytes);
  std::string hex();  // ends the hash; update() afterwards is a bug

 private:
  void block(const std::byte* data);

  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, 64> pending_{};
  uint64_t bytes_ = 0;
  bool ended_ = false;
};

}  // namespace trireme::base
