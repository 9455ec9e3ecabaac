// SPDX-License-Identifier: Apache-2.0
// KeptStore: the copies that a rank keeps for other ranks (ckpt/memory/kept_copies.h), for the
// threads that serve these ranks and the one that trains.
//
// In an epoch it first has what an earlier one has left, which may be read, and after begin() what
// ranks store. What was left stays until the first rank stores a copy: an epoch that ends before
// has lost nothing.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "ckpt/memory/kept_copies.h"

namespace trireme::train {

class KeptStore {
 public:
  // Opens what the memory of `descriptor` has. Throws IoError.
  explicit KeptStore(int descriptor);

  struct Kept {
    ckpt::CopyShape shape;
    ckpt::FoundCopy copy;
  };
  // Returns the copies whose headers are intact; their content was not compared with its hash.
  std::vector<Kept> list() const;

  // Reserves room for copies of these shapes. Throws OutOfMemory, IoError.
  void reserve(std::span<const ckpt::CopyShape>);
  // Gives up what was left, if that is not done, and memory beyond the room.
  void settle();
  int64_t reserved_bytes() const { return ckpt::CopyMemory::reserved_bytes(descriptor_); }
  // The run continues after `step`: empties copies of later steps, and of other runs. From now on
  // ranks store copies, and read none.
  void begin(const std::string& run, int64_t step);
  // All ranks have sealed their copies of this step.
  void mark_held(int64_t step);

  // ---- by threads that serve ranks
  // A copy that is being stored; it is dropped if the object ends before seal().
  class Storing {
   public:
    Storing(KeptStore& store, ckpt::CopyMemory& memory, int buffer, std::span<std::byte> content)
        : store_(store), memory_(memory), buffer_(buffer), content_(content) {}
    ~Storing();
    Storing(const Storing&) = delete;
    Storing& operator=(const Storing&) = delete;
    // The memory of the content.
    std::span<std::byte> content() const { return content_; }
    // It is complete.
    void seal(const ckpt::CopyLabel&, const ckpt::Hash& content);

   private:
    KeptStore& store_;
    ckpt::CopyMemory& memory_;
    const int buffer_;
    const std::span<std::byte> content_;
  };
  // Begins to store a copy with this label, in place of one of a step other than `keep`. Sets
  // `refusal` to the reason if it may not.
  std::optional<Storing> store(const ckpt::CopyShape&, const ckpt::CopyLabel&, int64_t keep,
                               std::string& refusal);
  // Returns the steps of which copies of a rank are kept.
  std::vector<int64_t> steps_of(int rank) const;

  struct Read {
    ckpt::CopyLabel label;
    ckpt::Hash hash;  // that it was sealed with
    std::span<const std::byte> content;
  };
  // Returns the copy of a rank after `step`; none: there is none of that shape.
  std::optional<Read> read(const ckpt::CopyShape&, int64_t step);

 private:
  const int descriptor_;
  mutable std::mutex mutex_;  // guards all below, and the headers of the memory
  // REQUIRES: mutex_ is held.
  void make_room();

  std::optional<ckpt::KeptCopies> copies_;
  std::optional<std::vector<ckpt::CopyShape>> reserved_;  // none: what was left has these shapes
  std::string run_;
  bool has_begun_ = false;
  std::set<int> storing_;  // ranks
};

}  // namespace trireme::train
