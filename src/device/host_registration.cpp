// SPDX-License-Identifier: Apache-2.0
#include "device/host_registration.h"

#include <algorithm>

namespace trireme::device {

bool HostRegistration::add(std::span<std::byte> memory, const std::atomic<bool>& stop) {
  if (!device_.registers_host_memory()) return true;
  while (!memory.empty()) {
    if (stop) return false;
    const auto piece = memory.first(std::min(memory.size(), static_cast<size_t>(piece_bytes)));
    pieces_.reserve(pieces_.size() + 1);  // before there is something to give back
    device_.register_host(piece);
    pieces_.push_back(piece.data());
    memory = memory.subspan(piece.size());
  }
  return true;
}

void HostRegistration::clear() noexcept {
  for (std::byte* const piece : pieces_) device_.unregister_host(piece);
  pieces_.clear();
}

}  // namespace trireme::device
