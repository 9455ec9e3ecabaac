// SPDX-License-Identifier: Apache-2.0
#include "ckpt/memory/copy_sink.h"

#include <algorithm>

#include "base/check.h"

namespace trireme::ckpt {

void CopySink::do_write(std::span<const std::byte> content) {
  TRIREME_CHECK(content.size() == block_.size(), "{} bytes for a copy of {}", content.size(),
                block_.size());
  if (content.data() != block_.data()) std::ranges::copy(content, block_.begin());
}

Receipt CopySink::do_seal() {
  if (hash_) {
    memory_.seal(buffer_, label_, *hash_);
  } else {
    hash_ = memory_.seal(buffer_, label_);
  }
  return {.bytes = std::ssize(block_), .index_bytes = 0, .hash = *hash_};
}

}  // namespace trireme::ckpt
