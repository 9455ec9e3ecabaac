// SPDX-License-Identifier: Apache-2.0
// Rank: one rank of a run: its number, its mesh, and the exchange of small values between ranks
// outside of steps. Only the first rank logs and writes.
#pragma once

#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "comm/mesh.h"
#include "device/device.h"
#include "device/memory.h"

namespace trireme::train {

class Rank {
 public:
  // `world` spans all ranks; null: this is the only one. Allocates memory_bytes() on the device,
  // which must outlive it.
  Rank(std::unique_ptr<comm::Communicator> world, const spec::Sizes& sizes, device::Device& device);

  // Ends the groups and the world of this rank. Engines on its mesh are closed before.
  void close(comm::End end) noexcept {
    if (mesh_) mesh_->close(end);
    if (world_) world_->close(end);
  }

  // Returns the device memory of one of `ranks` ranks for gather(). It is allocated before a plan
  // is compared with the device's available memory, and is not part of the plan's prediction.
  static int64_t memory_bytes(int ranks) { return ranks == 1 ? 0 : (ranks + 1) * slot_bytes; }

  int number() const { return world_ ? world_->rank() : 0; }
  int ranks() const { return world_ ? world_->size() : 1; }
  bool is_alone() const { return world_ == nullptr; }
  bool is_first() const { return number() == 0; }
  comm::Mesh* mesh() { return mesh_ ? &*mesh_ : nullptr; }  // null: alone
  const spec::Coord& coord() const { return coord_; }
  // Whether sums over ranks are those of a library, whose order is not fixed: a repeated step may
  // then have other bits (Communicator::has_library_sums).
  bool has_library_sums() const { return world_ != nullptr && world_->has_library_sums(); }
  // Returns the node of every rank, by rank; empty: all ranks are on one.
  std::vector<int> nodes() const { return world_ ? world_->options().nodes : std::vector<int>{}; }

  // Returns every rank's value, by rank. The host waits for all ranks, but for no other stream.
  // Collective.
  template <typename T>
  std::vector<T> gather(const T& mine) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= slot_bytes);
    if (is_alone()) return {mine};
    std::vector<T> all(static_cast<size_t>(ranks()));
    gather_bytes(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
    return all;
  }
  // Returns every rank's text, by rank, on the first rank, and nothing on others. For texts of any
  // length, outside of steps. Collective.
  std::vector<std::string> gather_texts(const std::string& mine);
  // The same, and returns them on all ranks.
  std::vector<std::string> all_gather_texts(const std::string& mine);
  // Replaces `bytes` on every rank by those of rank `source`, in pieces of at most a few MiB, which
  // take device memory meanwhile. Outside of steps, and of the engine's life. Collective.
  void broadcast(std::span<std::byte> bytes, int source);
  void barrier() {
    if (world_) world_->barrier();
  }
  // A rank that works while others wait for it takes part in a collective this often, which is far
  // below any deadline.
  static constexpr std::chrono::milliseconds heartbeat_interval{200};
  // Runs `work` on the first rank, for as long as it takes: meanwhile the ranks exchange
  // heartbeats, so that no deadline passes. With several ranks `work` runs on another thread, and
  // must not communicate. Its exception is rethrown on the first rank. Collective.
  void on_first(const std::function<void()>& work);

 private:
  static constexpr int64_t slot_bytes = 512;
  std::vector<std::string> gather_texts(const std::string& mine, bool is_here);
  void gather_bytes(std::span<const std::byte> mine, std::span<std::byte> all);

  device::Device& device_;
  std::unique_ptr<comm::Communicator> world_;
  std::optional<comm::Mesh> mesh_;
  spec::Coord coord_;
  std::optional<device::Buffer> memory_;
  std::unique_ptr<device::Stream> stream_;
};

}  // namespace trireme::train
