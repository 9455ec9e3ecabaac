// SPDX-License-Identifier: Apache-2.0
// CopySink: the state of a rank as a copy in one buffer of a CopyMemory.
#pragma once

#include <optional>
#include <span>

#include "ckpt/memory/copy_memory.h"
#include "ckpt/sink.h"

namespace trireme::ckpt {

class CopySink final : public Sink {
 public:
  // The memory must outlive it.
  CopySink(CopyMemory& memory, int buffer, const CopyLabel& label)
      : memory_(memory), buffer_(buffer), label_(label) {}

  int buffer() const { return buffer_; }
  const CopyLabel& label() const { return label_; }
  // The memory of the content: filled in place, it is not copied again by write(). REQUIRES: begun.
  std::span<std::byte> block() const { return block_; }
  // The content is sealed with this hash, computed where it comes from (content_hash()); without
  // it, with that of the bytes that have arrived. REQUIRES: not sealed.
  void set_hash(const Hash& content) { hash_ = content; }

 private:
  void do_begin() override { block_ = memory_.begin(buffer_); }
  void do_write(std::span<const std::byte> content) override;
  Receipt do_seal() override;

  CopyMemory& memory_;
  const int buffer_;
  const CopyLabel label_;
  std::span<std::byte> block_;
  std::optional<Hash> hash_;
};

}  // namespace trireme::ckpt
