// SPDX-License-Identifier: Apache-2.0
// TensorGroup: the ranks along tp, which share this rank's micro-batches. Their collectives run on
// the compute stream: inside layers (nn::Boundary), and for the gradients of parameters that all of
// them have.
#pragma once

#include <span>
#include <vector>

#include "comm/communicator.h"
#include "comm/mesh.h"
#include "device/device.h"
#include "nn/boundary.h"
#include "spec/parallel/data_parallel.h"
#include "spec/plan.h"

namespace trireme::engine {

class TensorGroup {
 public:
  // `mesh` null: one rank. Collective over the world. REQUIRES: the mesh is the plan's.
  TensorGroup(const spec::Plan&, comm::Mesh*, device::Stream& compute);

  int ranks() const { return group_ == nullptr ? 1 : group_->size(); }
  nn::Boundary boundary() const { return {group_, sequence_parallel_}; }
  bool sequence_parallel() const { return sequence_parallel_; }

  // inout = sum over ranks. Does nothing on one rank or for no elements.
  void sum_grads(device::Tensor inout);
  // Gathers the parts of a matrix, one after the other. REQUIRES: several ranks.
  void gather_update(device::Tensor out, device::ConstTensor own);
  // inout (f32) = maximum or sum over ranks. Does nothing on one rank.
  void reduce_state(device::Tensor inout, comm::Reduce);
  // Returns the floats `own` of every rank, one after the other. Sends them through the buffer;
  // waits for the device.
  std::vector<float> gather_for_host(std::span<const float> own);

  // Memory for parts of sums that other ranks send. Not owned.
  void set_buffer(device::Tensor);

  // Adds the bytes sent since the last call to this kind.
  void count(int64_t spec::TrafficTable::*kind);
  const spec::TrafficTable& traffic() const { return traffic_; }

 private:
  device::Stream& compute_;
  comm::Communicator* group_ = nullptr;  // null: one rank
  bool sequence_parallel_;
  device::Tensor buffer_;
  int64_t counted_ = 0;
  spec::TrafficTable traffic_;
};

}  // namespace trireme::engine
