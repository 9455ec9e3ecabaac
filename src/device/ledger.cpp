// SPDX-License-Identifier: Apache-2.0
#include "device/ledger.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"

namespace trireme::device {

std::string_view name_of(Mem mem) {
  constexpr std::array<std::string_view, static_cast<size_t>(Mem::count)> names = {
      "params", "grads",   "optim", "stash",      "scratch",
      "comm",   "staging", "cache", "checkpoint", "external"};
  TRIREME_CHECK(mem < Mem::count, "mem {}", static_cast<int>(mem));
  return names[static_cast<size_t>(mem)];
}

void Ledger::reserve(Mem mem, int64_t bytes, std::string_view what) {
  const std::scoped_lock lock(mutex_);
  TRIREME_CHECK(!frozen_, "{} bytes of {} for '{}' after the ledger was frozen", bytes,
                name_of(mem), what);
  TRIREME_CHECK(bytes >= 0, "{} bytes for '{}'", bytes, what);
  if (bytes > budget_bytes_ - live_sum_) {
    throw base::OutOfMemory(
        fmt::format("out of memory: '{}' needs {} bytes of {}, {} of the budget of {} bytes are "
                    "available",
                    what, bytes, name_of(mem), budget_bytes_ - live_sum_, budget_bytes_));
  }
  const auto at = static_cast<size_t>(mem);
  live_[at] += bytes;
  live_sum_ += bytes;
  peak_[at] = std::max(peak_[at], live_[at]);
  peak_sum_ = std::max(peak_sum_, live_sum_);
  ++reservations_;
}

void Ledger::release(Mem mem, int64_t bytes) noexcept {
  const std::scoped_lock lock(mutex_);
  const auto at = static_cast<size_t>(mem);
  TRIREME_CHECK(bytes <= live_[at], "{} bytes released, {} are reserved", bytes, live_[at]);
  live_[at] -= bytes;
  live_sum_ -= bytes;
}

int64_t Ledger::live(Mem mem) const {
  const std::scoped_lock lock(mutex_);
  return live_[static_cast<size_t>(mem)];
}

int64_t Ledger::peak(Mem mem) const {
  const std::scoped_lock lock(mutex_);
  return peak_[static_cast<size_t>(mem)];
}

int64_t Ledger::live() const {
  const std::scoped_lock lock(mutex_);
  return live_sum_;
}

int64_t Ledger::peak() const {
  const std::scoped_lock lock(mutex_);
  return peak_sum_;
}

int64_t Ledger::reservations() const {
  const std::scoped_lock lock(mutex_);
  return reservations_;
}

int64_t Ledger::available() const {
  const std::scoped_lock lock(mutex_);
  return budget_bytes_ - live_sum_;
}

void Ledger::freeze() {
  const std::scoped_lock lock(mutex_);
  frozen_ = true;
}

void Ledger::unfreeze() {
  const std::scoped_lock lock(mutex_);
  frozen_ = false;
}

bool Ledger::is_frozen() const {
  const std::scoped_lock lock(mutex_);
  return frozen_;
}

}  // namespace trireme::device
