// SPDX-License-Identifier: Apache-2.0
// DataGroups: the ranks along the data axes that train the same part of the model, and the stream
// of their collectives, beside the compute stream. With one rank nothing is sent, and the stream is
// the compute stream itself.
//
// The data group (all axes of the mesh view) is ordered by spec::reduced_place, shards slow and
// copies fast, so that its rank r reduces the r-th part of a bucket, and the parts of the copies of
// a shard lie side by side in it. comm::SumOrder maps ranks to the leaves that they have
// (spec::leaves_of).
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "comm/communicator.h"
#include "comm/mesh.h"
#include "device/device.h"
#include "spec/parallel/data_parallel.h"
#include "spec/plan.h"

namespace trireme::engine {

class DataGroups {
 public:
  // `mesh` null: one rank. Collective over the world. Throws ConfigError if the mesh is not the
  // plan's.
  DataGroups(const spec::Plan&, comm::Mesh*, device::Device&, device::Stream& compute);

  bool has_peers() const { return data_ != nullptr; }
  // Does closing a step need other ranks, along the data axes, tp or pp?
  bool closes_with_peers() const { return closing_ != nullptr; }
  const spec::Coord& coord() const { return coord_; }
  device::Stream& stream() { return own_stream_ ? *own_stream_ : compute_; }
  device::Stream& compute() { return compute_; }

  // ---- order between the two streams; these do nothing if they are the same
  device::Event mark(device::Stream&) const;  // the point after all work queued so far
  void after_compute();                       // stream() waits for all work on compute
  void before_compute();                      // compute waits for all work on stream()

  // ---- on stream(). REQUIRES: has_peers(); for step sums closes_with_peers()
  // out = this rank's part of the sum over all workers; `parts` are this rank's nodes of the sum
  // tree.
  void reduce(device::Tensor out, std::span<const device::ConstTensor> parts);
  // Gathers the sums of all ranks that update the same parameters; `own` is this rank's part of
  // `out`.
  void gather_grads(device::Tensor out, device::ConstTensor own);
  // Gathers the shards.
  void gather_params(device::Tensor out, device::ConstTensor own);
  void gather_step_sums(device::Tensor out, device::ConstTensor own);
  // ---- of matrices that one rank updates for others
  int place() const { return data_ ? data_->rank() : 0; }  // in the data group
  // Gathers over the ranks that share the state; `own` is this rank's part of `out`.
  void gather_updates(device::Tensor out, device::ConstTensor own);
  // Sends `inout` of the rank with this place to all of the data group.
  void broadcast_update(device::Tensor inout, int from);
  // inout (f32) = maximum over the data group, ordered with compute; does nothing without peers.
  void max_state(device::Tensor inout);
  // The same as gather_grads() and gather_params(), for reads by name: counted as other traffic.
  void gather_grads_for_host(device::Tensor out, device::ConstTensor own);
  void gather_for_host(device::Tensor out, device::ConstTensor own);

  // Memory for parts of sums that other ranks send. Not owned.
  void set_received(device::Tensor);
  device::Tensor received() const { return received_; }

  // Bytes sent by this rank so far.
  const spec::TrafficTable& traffic() const { return traffic_; }

 private:
  void counted(int64_t spec::TrafficTable::*kind, comm::Communicator*,
               const std::function<void(comm::Communicator&)>& call);

  device::Stream& compute_;
  spec::Coord coord_;
  std::unique_ptr<comm::Communicator> closing_;  // null: a world of one rank
  std::unique_ptr<comm::Communicator> data_;     // null: one data rank
  // Declared after the communicators, which its queued work uses: its destructor drains the queue.
  std::unique_ptr<device::Stream> own_stream_;
  comm::Communicator* copies_ = nullptr;  // ranks with the same shard; null: there is one
  comm::Communicator* shards_ = nullptr;  // ranks with different shards
  bool updates_all_ = false;              // every rank updates all parameters
  comm::SumOrder order_;
  device::Tensor received_;
  spec::TrafficTable traffic_;
};

}  // namespace trireme::engine
