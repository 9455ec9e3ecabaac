// SPDX-License-Identifier: Apache-2.0
// TensorGroup: the ranks that share this rank's micro-batches along tp. They talk on the compute
// stream, inside layers (nn::Boundary), and where gradients of parameters that all of them have
// become complete.
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

  // inout = sum over ranks; nothing to do on one rank or for no elements.
  void sum_grads(device::Tensor inout);
  // What every rank gives, one after the other, in fp32. Through the buffer; waits for the device.
  std::vector<float> gather_for_host(std::span<const float> own);

  // Memory for parts of sums that arrive. Not owned.
  void set_buffer(device::Tensor);

  // What was sent since the last call is of this kind.
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
