// SPDX-License-Identifier: Apache-2.0
#include "ckpt/disk/hash.h"

#define XXH_INLINE_ALL
#include <fmt/core.h>
#include <xxhash.h>

#include <charconv>

namespace trireme::ckpt {

Hash hash_of(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.high64, hash.low64};
}

Hash hash_of(std::string_view text) { return hash_of(std::as_bytes(std::span(text))); }

struct Hasher::State {
  XXH3_state_t state;
};

Hasher::Hasher() : state_(std::make_unique<State>()) { XXH3_128bits_reset(&state_->state); }
Hasher::~Hasher() = default;
Hasher::Hasher(Hasher&&) noexcept = default;
Hasher& Hasher::operator=(Hasher&&) noexcept = default;

void Hasher::add(std::span<const std::byte> bytes) {
  XXH3_128bits_update(&state_->state, bytes.data(), bytes.size());
}

Hash Hasher::hash() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(&state_->state);
  return {hash.high64, hash.low64};
}

std::string to_hex(const Hash& hash) { return fmt::format("{:016x}{:016x}", hash.high, hash.low); }

std::optional<Hash> hash_from_hex(std::string_view text) {
  if (text.size() != 32 || text.find_first_not_of("0123456789abcdef") != std::string_view::npos) {
    return {};
  }
  Hash hash;
  std::from_chars(text.data(), text.data() + 16, hash.high, 16);
  std::from_chars(text.data() + 16, text.data() + 32, hash.low, 16);
  return hash;
}

}  // namespace trireme::ckpt
