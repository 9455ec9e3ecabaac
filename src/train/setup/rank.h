// SPDX-License-Identifier: Apache-2.0
// Rank: one rank of a run: who it is, its mesh, and what ranks tell each other outside of steps.
// The first rank alone prints, logs and writes.
#pragma once

#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "comm/mesh.h"
#include "device/device.h"
#include "device/memory.h"

namespace trireme::train {

class Rank {
 public:
  // `world` spans all ranks; null: this is the only one. Takes memory_bytes() of the device, which
  // must outlive it.
  Rank(std::unique_ptr<comm::Communicator> world, const spec::Sizes& sizes, device::Device& device);

  // Device memory of a rank among so many, for gather(). It is taken before a plan is compared with
  // what the device has available, and is no part of the plan's prediction.
  static int64_t memory_bytes(int ranks) { return ranks == 1 ? 0 : (ranks + 1) * slot_bytes; }

  int number() const { return world_ ? world_->rank() : 0; }
  int ranks() const { return world_ ? world_->size() : 1; }
  bool is_alone() const { return world_ == nullptr; }
  bool is_first() const { return number() == 0; }
  comm::Mesh* mesh() { return mesh_ ? &*mesh_ : nullptr; }  // null: alone
  const spec::Coord& coord() const { return coord_; }

  // What every rank brings, by rank. The host waits for all ranks, and for no other stream.
  // Collective.
  template <typename T>
  std::vector<T> gather(const T& mine) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= slot_bytes);
    if (is_alone()) return {mine};
    std::vector<T> all(static_cast<size_t>(ranks()));
    gather_bytes(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
    return all;
  }
  void barrier() {
    if (world_) world_->barrier();
  }
  // A rank that works while others wait for it tells them so this often: far below any deadline.
  static constexpr std::chrono::milliseconds heartbeat_interval{200};
  // Runs `work` on the first rank, for as long as it takes: meanwhile the ranks exchange a sign of
  // life, so that no deadline passes. `work` runs on a thread of its own where there
  // are several ranks, and must not communicate. What it throws is thrown on the first rank.
  // Collective.
  void on_first(const std::function<void()>& work);

 private:
  static constexpr int64_t slot_bytes = 512;
  void gather_bytes(std::span<const std::byte> mine, std::span<std::byte> all);

  std::unique_ptr<comm::Communicator> world_;
  std::optional<comm::Mesh> mesh_;
  spec::Coord coord_;
  std::optional<device::Buffer> memory_;
  std::unique_ptr<device::Stream> stream_;
};

}  // namespace trireme::train
