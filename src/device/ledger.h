// SPDX-License-Identifier: Apache-2.0
// Ledger: the only place where memory is counted. A rank has one for the memory of its device, in
// which every Buffer is registered, and one for HostBuffers.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <mutex>
#include <string_view>

namespace trireme::device {

// The purpose of memory. `cache` has keys and values of the tokens that a model is continuing.
// `checkpoint` is state in host memory that is being written to a disk. `external` is library
// memory (contexts, collectives) that is measured, not allocated by Trireme.
enum class Mem : uint8_t {
  params,
  grads,
  optim,
  stash,
  scratch,
  comm,
  staging,
  cache,
  checkpoint,
  external,
  count
};

std::string_view name_of(Mem);

// Thread-safe.
class Ledger {
 public:
  explicit Ledger(int64_t budget_bytes = std::numeric_limits<int64_t>::max())
      : budget_bytes_(budget_bytes) {}

  // Throws OutOfMemory if the sum of all purposes would exceed the budget. Calling reserve() after
  // freeze() is a bug.
  void reserve(Mem, int64_t bytes, std::string_view what);
  void release(Mem, int64_t bytes) noexcept;

  int64_t live(Mem) const;
  int64_t peak(Mem) const;
  int64_t live() const;          // all purposes
  int64_t peak() const;          // highest sum of all purposes at one instant
  int64_t reservations() const;  // number of calls of reserve()
  int64_t available() const;     // of the budget

  // Forbids further reservations; called when warm-up is over.
  void freeze();
  // Allows reservations again, for a run that replaces its engine by one of another shape.
  void unfreeze();
  bool is_frozen() const;

 private:
  static constexpr size_t purposes = static_cast<size_t>(Mem::count);

  mutable std::mutex mutex_;  // guards all members below
  const int64_t budget_bytes_;
  std::array<int64_t, purposes> live_{};
  std::array<int64_t, purposes> peak_{};
  int64_t live_sum_ = 0;
  int64_t peak_sum_ = 0;
  int64_t reservations_ = 0;
  bool frozen_ = false;
};

}  // namespace trireme::device
