// SPDX-License-Identifier: Apache-2.0
// A group of processes over Gloo. Groups share the connections of the world, and each has its own
// tags; one thread of the process serves all of them. Every call has its own tag, so that ranks
// that disagree about the next call wait, and are reported, instead of receiving each other's
// bytes.
#pragma once

#include <gloo/context.h>
#include <gloo/transport/device.h>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/gloo/gloo_mesh.h"
#include "comm/world/process_group.h"

namespace trireme::comm {

class GlooCommunicator final : public Communicator {
 public:
  // How a group reaches its ranks.
  struct Lane {
    std::shared_ptr<gloo::transport::Device> device;  // shared by all groups of the process
    std::shared_ptr<GlooMesh> mesh;                   // null in a group of one
    // Whether the ranks of the mesh are those of the world, and `id` is the group's part of tags;
    // otherwise the mesh is the group's own.
    bool is_shared = false;
    uint64_t id = 0;
  };
  // A lane without a mesh gets one: the ranks of the group are connected. Collective.
  GlooCommunicator(ProcessWorld& world, Lane lane, ProcessGroup group, Options options);
  ~GlooCommunicator() override;

  void abort(const std::string& reason) noexcept override;
  AbortFlags* abort_flags() override { return &world_.abort_flags(); }

 private:
  class Transfers;

  // Returns the lane of the group that was split off last.
  Lane next_lane(const ProcessGroup& subgroup, const Options& options);
  int in_mesh(int rank) const {
    return lane_.is_shared ? group_.world_ranks[static_cast<size_t>(rank)] : rank;
  }

  void do_all_gather(Stream&, Tensor out, ConstTensor in) override;
  void do_exchange(Stream&, Tensor out, const std::byte* in, int64_t stride_bytes,
                   int64_t chunk_bytes, std::span<const int> from) override;
  void do_transfer(Stream&, std::span<const Outgoing>, std::span<const Incoming>) override;
  bool library_can_sum() const override { return true; }
  void do_broadcast(Stream&, Tensor inout, int root) override;
  void do_shift(Stream&, Tensor out, ConstTensor in) override;
  void do_send(Stream&, ConstTensor, int to) override;
  void do_recv(Stream&, Tensor, int from) override;
  void do_barrier() override;
  std::unique_ptr<Communicator> do_split(int color, int key, Options options) override;
  bool do_all_reduce(Stream&, Tensor inout, Reduce) override;
  std::vector<std::string> do_gather_texts(const std::string& text) override;

  // Runs `work`, which may throw Gloo's exceptions, in the order of the stream.
  void enqueue(Stream&, std::function<void()> work);
  void guarded(const std::function<void()>& work);
  // Ends all waits in this group, and those that begin later.
  void cancel_waits() noexcept;
  uint64_t tag_of(uint64_t number) const;
  uint64_t next_tag() { return tag_of(next_tag_++); }

  ProcessWorld& world_;
  const ProcessGroup group_;
  Lane lane_;
  uint64_t next_tag_ = 0;
  std::vector<uint64_t> sends_, receives_;  // messages, by rank of the group
  int64_t splits_ = 0, texts_gathered_ = 0;
  std::mutex transfers_mutex_;  // guards is_cancelled_ and transfers_
  bool is_cancelled_ = false;
  std::set<Transfers*> transfers_;          // in wait(), or about to enter it
  std::optional<ProcessWorld::Wake> wake_;  // last: destroyed before the lane
};

}  // namespace trireme::comm
