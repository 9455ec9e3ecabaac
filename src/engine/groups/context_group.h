// SPDX-License-Identifier: Apache-2.0
// ContextGroup: the ranks along cp, which have other rows of this rank's micro-batches. Exchanges
// of heads run on the compute stream, those of keys beside it (nn::ContextBoundary).
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "comm/mesh.h"
#include "device/device.h"
#include "nn/boundaries.h"
#include "spec/parallel/data_parallel.h"
#include "spec/plan.h"

namespace trireme::engine {

class ContextGroup {
 public:
  // `mesh` null: one rank. Collective over the world. REQUIRES: the mesh is the plan's.
  ContextGroup(const spec::Plan&, comm::Mesh*, device::Device&, device::Stream& compute);

  int ranks() const { return all_ == nullptr ? 1 : all_->size(); }
  int rank() const { return all_ == nullptr ? 0 : all_->rank(); }
  nn::ContextBoundary boundary() { return {ulysses_.get(), groups_.get(), side_.get()}; }
  // The stream of keys; null: there is none.
  device::Stream* side() { return side_.get(); }

  // all = the `own` of every rank, one after the other, on the compute stream. REQUIRES: ranks()
  // > 1.
  void gather(device::Tensor all, device::ConstTensor own);

  // Memory for parts of sums that other ranks send. Not owned.
  void set_buffer(device::Tensor);

  // Ends the groups of this object. REQUIRES: nothing is in flight.
  void close(comm::End end) noexcept {
    if (ulysses_) ulysses_->close(end);
    if (groups_) groups_->close(end);
  }

  // Adds the bytes sent since the last call to this kind.
  void count(int64_t spec::TrafficTable::*kind);
  const spec::TrafficTable& traffic() const { return traffic_; }

 private:
  device::Stream& compute_;
  comm::Communicator* all_ = nullptr;            // null: one rank
  std::unique_ptr<comm::Communicator> ulysses_;  // null: one rank in a group
  std::unique_ptr<comm::Communicator> groups_;   // null: one group
  // Declared after the communicators, which its queued work uses: its destructor drains the queue.
  std::unique_ptr<device::Stream> side_;
  int64_t counted_ = 0;
  spec::TrafficTable traffic_;
};

}  // namespace trireme::engine
