// SPDX-License-Identifier: Apache-2.0
// ExpertGroup: the ranks along ep and etp, which share the experts of this rank's layers, and the
// ranks over which layers sum the loads of experts (nn::ExpertBoundary). Rows travel along ep
// beside the compute stream; other collectives run on it.
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

class ExpertGroup {
 public:
  // `mesh` null: one rank. Collective over the world. REQUIRES: the mesh is the plan's.
  ExpertGroup(const spec::ModelSpec&, const spec::Plan&, comm::Mesh*, device::Device&,
              device::Stream& compute);

  const nn::ExpertBoundary& boundary() const { return boundary_; }
  // The stream of rows; null: there is none.
  device::Stream* side() { return side_.get(); }
  // The ranks that hold different parts of the same experts' parameters: along ep, then etp.
  int ranks() const { return cuts_ == nullptr ? 1 : cuts_->size(); }
  // Returns the coordinate, along ep and etp, of one of these ranks; the other axes are `own`'s.
  spec::Coord coord_of(int rank, spec::Coord own) const;

  // Returns the floats `own` of every rank, one after the other. Sends them through the buffer;
  // waits for the device. REQUIRES: ranks() > 1.
  std::vector<float> gather_for_host(std::span<const float> own);

  // Memory for parts of sums that other ranks send. Not owned.
  void set_buffer(device::Tensor);

  // Adds the bytes sent since the last call to this kind.
  void count(int64_t spec::TrafficTable::*kind);
  const spec::TrafficTable& traffic() const { return traffic_; }

 private:
  int64_t sent_bytes() const;

  device::Stream& compute_;
  int etp_ = 1;
  nn::ExpertBoundary boundary_;
  comm::Communicator* cuts_ = nullptr;       // null: one rank
  std::vector<comm::Communicator*> groups_;  // all of them, each once
  // Its queued work uses groups of the mesh, which outlives this object.
  std::unique_ptr<device::Stream> side_;
  device::Tensor buffer_;
  int64_t counted_ = 0;  // groups of the mesh may have sent some before this object existed
  spec::TrafficTable traffic_;
};

}  // namespace trireme::engine
