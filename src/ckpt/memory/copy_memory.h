// SPDX-License-Identifier: Apache-2.0
// CopyMemory: copies of a rank's state in memory that outlives its process: a descriptor
// (memfd_create) that another process holds, too. It has two or three buffers, so that one complete
// copy exists while another is written.
//
// A buffer is empty -> filling -> sealed -> held, and filling again. Its header, which begin()
// invalidates and seal() writes last, has a hash of the content and a hash of itself: a buffer that
// a process left half written, or that was damaged, is not found by copies(), or fails verify().
// The content's hash is a sum over its blocks, against accidents only (base/hash/content_sum.h).
//
// Which buffer may be overwritten is decided by free_buffer() (copy_round.h), a pure function.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/hash/content_sum.h"
#include "ckpt/disk/hash.h"

namespace trireme::ckpt {

constexpr int min_copy_buffers = 2, max_copy_buffers = 3;

// What all buffers of a rank have in common.
struct CopyShape {
  Hash layout;        // of a description of what lies where
  int64_t bytes = 0;  // of one copy
  int rank = 0;
  int buffers = min_copy_buffers;

  int64_t memory_bytes() const;  // of all buffers, with their headers
  bool operator==(const CopyShape&) const = default;
};

// What a copy is of.
struct CopyLabel {
  std::array<char, 40> run{};          // id of the run, ending with zeros
  int64_t epoch = 0;                   // of the run's group of ranks that wrote it
  int64_t step = 0;                    // it is the state after this step
  std::array<std::byte, 1024> note{};  // what the caller keeps besides
};

struct FoundCopy {
  int buffer = 0;
  bool is_held = false;  // all ranks had sealed theirs of this step
  CopyLabel label;
};

// Returns the hash of a content, from the sum of all its parts (base/hash/content_sum.h): devices
// compute it where the content comes from.
inline Hash content_hash(const base::ContentSum& sum) { return {.high = sum.high, .low = sum.low}; }

class CopyMemory {
 public:
  // Maps the memory of `descriptor`, which stays open and belongs to the caller, and makes it
  // shape.memory_bytes() large; the system has reserved all of it then. Buffers of another shape
  // are empty afterwards. Throws OutOfMemory if there is too little, IoError if the descriptor
  // cannot be mapped.
  CopyMemory(int descriptor, const CopyShape&);
  // Maps it only if it has that size already; none: it has another.
  static std::optional<CopyMemory> existing(int descriptor, const CopyShape&);
  // Maps a part of a descriptor's memory, from `offset` on, a multiple of page_bytes: the memory is
  // at least offset + shape.memory_bytes() large. Buffers of another shape stay, and are not found.
  static CopyMemory part_of(int descriptor, int64_t offset, const CopyShape&);
  // Returns the copies of any shape in the memory of a descriptor, as copies(): for programs that
  // know no plan.
  static std::vector<FoundCopy> copies_in(int descriptor);
  // Returns their shape; none: there are no copies.
  static std::optional<CopyShape> shape_in(int descriptor);
  // Gives the memory of the descriptor back to the system.
  static void release(int descriptor);
  ~CopyMemory();
  CopyMemory(CopyMemory&&) noexcept;
  CopyMemory& operator=(CopyMemory&&) = delete;

  const CopyShape& shape() const { return shape_; }
  int64_t reserved_bytes() const { return reserved_bytes(descriptor_); }
  // Returns the memory that the system has reserved for a descriptor.
  static int64_t reserved_bytes(int descriptor);

  // ---- reading
  // Returns the copies whose headers are intact, the newest first. Their content was not compared
  // with its hash.
  std::vector<FoundCopy> copies() const;
  bool verify(int buffer) const;  // compares the content with its hash
  std::span<const std::byte> content(int buffer) const;
  // Returns the hash that a copy was sealed with. REQUIRES: sealed.
  Hash hash(int buffer) const;

  // ---- writing. Two buffers may be written by two threads, one buffer by one.
  void clear(int buffer);
  // The buffer is filling: returns its memory, at a multiple of 4,096 bytes.
  std::span<std::byte> begin(int buffer);
  // Returns the same memory, and the buffer stays as it is: for a caller that prepares it.
  std::span<std::byte> room(int buffer);
  // The content is complete; returns its hash. REQUIRES: begin(), and no write since it was
  // completed.
  Hash seal(int buffer, const CopyLabel&);
  // The same with the hash of the content, which the caller has computed (content_hash()).
  void seal(int buffer, const CopyLabel&, const Hash& content);
  // REQUIRES: sealed.
  void mark_held(int buffer);

 private:
  struct Header;
  CopyMemory(std::byte* memory, int descriptor, const CopyShape& shape)
      : memory_(memory), descriptor_(descriptor), shape_(shape) {}
  Header* header(int buffer) const;
  bool is_intact(const Header&) const;
  static std::vector<FoundCopy> newest_first(std::vector<FoundCopy>);
  // Calls each(shape, copy) for every buffer of a descriptor whose header is intact.
  template <typename Each>
  static void for_each_in(int descriptor, const Each& each);
  Hash hash_of_content(int buffer) const;

  std::byte* memory_;
  int descriptor_;
  CopyShape shape_;
};

}  // namespace trireme::ckpt
