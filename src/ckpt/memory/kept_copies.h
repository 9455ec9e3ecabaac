// SPDX-License-Identifier: Apache-2.0
// KeptCopies: copies of the states of other ranks, which this rank keeps for them in memory that
// outlives its process: a descriptor, as for CopyMemory. It begins with a directory of the ranks;
// the buffers of each rank follow as a CopyMemory.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ckpt/memory/copy_memory.h"

namespace trireme::ckpt {

class KeptCopies {
 public:
  // Returns the memory for copies of these shapes, with the directory; 0: there are none.
  static int64_t memory_bytes(std::span<const CopyShape>);
  // Maps the memory of `descriptor`, which stays open and belongs to the caller, and makes it that
  // large; the system has reserved all of it then. If it was made for other shapes, it is emptied.
  // Throws OutOfMemory if there is too little, IoError if the descriptor cannot be mapped.
  // REQUIRES: shapes of different ranks, at least one.
  KeptCopies(int descriptor, std::span<const CopyShape>);
  // Makes the memory at least so large, with the copies that it has. Throws as above.
  static void reserve(int descriptor, int64_t bytes);
  // Maps it as it was made; none: it has no intact directory. Throws IoError.
  static std::optional<KeptCopies> existing(int descriptor);

  // By rank, in the order in which they were given.
  std::vector<CopyMemory>& all() { return all_; }
  const std::vector<CopyMemory>& all() const { return all_; }
  // Returns the copies of a rank; null: they are not kept here.
  CopyMemory* of(int rank);

 private:
  KeptCopies() = default;
  void map(int descriptor, std::span<const CopyShape>);

  std::vector<CopyMemory> all_;
};

}  // namespace trireme::ckpt
