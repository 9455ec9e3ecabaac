// SPDX-License-Identifier: Apache-2.0
#include "base/rng.h"

namespace trireme::base {

RngKey rng_key(uint64_t seed, std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : name) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3ULL;
  }
  // The finaliser of splitmix64 spreads both inputs over all bits.
  uint64_t mixed = hash + 0x9e3779b97f4a7c15ULL * (seed + 1);
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9ULL;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebULL;
  return mixed ^ (mixed >> 31);
}

}  // namespace trireme::base
