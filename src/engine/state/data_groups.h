// SPDX-License-Identifier: Apache-2.0
// DataGroups: the ranks that share this rank's model along the data axes, and the stream on which
// they talk, beside the compute stream. With one rank nothing is sent, and the stream is the
// compute stream itself.
//
// The data group (dp and zero together) is ordered by spec::reduced_place, zero slow and dp fast,
// so that what its rank r adds up of a bucket is the bucket's r-th part and the parts that the
// ranks along dp add up lie side by side in one part along zero. Workers keep the order of the
// world (spec::data_rank); comm::SumOrder says who hosts which.
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
  // `mesh` null: one rank. Collective over the world. Throws ConfigError when the mesh is not the
  // plan's.
  DataGroups(const spec::Plan&, comm::Mesh*, device::Device&, device::Stream& compute);

  bool has_peers() const { return data_ != nullptr; }
  // Does a step end with ranks beside this one, along the data axes, tp or pp?
  bool closes_with_peers() const { return closing_ != nullptr; }
  const spec::Coord& coord() const { return coord_; }
  device::Stream& stream() { return own_stream_ ? *own_stream_ : compute_; }
  device::Stream& compute() { return compute_; }

  // ---- order between the two streams; nothing to do where they are one
  device::Event mark(device::Stream&) const;  // the point after all work queued so far
  void after_compute();                       // stream() waits for all work on compute
  void before_compute();                      // compute waits for all work on stream()

  // ---- on stream(). REQUIRES: has_peers(); for step sums closes_with_peers()
  // out = this rank's part of the sum over all workers; `parts` are its nodes of the tree.
  void reduce(device::Tensor out, std::span<const device::ConstTensor> parts);
  // The sums of all ranks that update the same parameters; `own` is this rank's part of `out`.
  void gather_grads(device::Tensor out, device::ConstTensor own);
  // Along zero.
  void gather_params(device::Tensor out, device::ConstTensor own);
  void gather_step_sums(device::Tensor out, device::ConstTensor own);
  // For readers by name: gather_grads(), and along zero.
  void gather_grads_for_host(device::Tensor out, device::ConstTensor own);
  void gather_for_host(device::Tensor out, device::ConstTensor own);

  // Memory for parts of sums that arrive. Not owned.
  void set_received(device::Tensor);
  device::Tensor received() const { return received_; }

  // Sent by this rank so far.
  const spec::TrafficTable& traffic() const { return traffic_; }

 private:
  void counted(int64_t spec::TrafficTable::*kind, comm::Communicator*,
               const std::function<void(comm::Communicator&)>& call);

  device::Stream& compute_;
  spec::Coord coord_;
  std::unique_ptr<comm::Communicator> closing_;  // null: one rank in all
  std::unique_ptr<comm::Communicator> data_;     // null: one rank
  // After the communicators, which its queued work uses: its destructor empties the queue.
  std::unique_ptr<device::Stream> own_stream_;
  comm::Communicator* dp_ = nullptr;  // null where the axis has one rank
  comm::Communicator* zero_ = nullptr;
  bool updates_all_ = false;  // every rank updates all parameters
  comm::SumOrder order_;
  device::Tensor received_;
  spec::TrafficTable traffic_;
};

}  // namespace trireme::engine
