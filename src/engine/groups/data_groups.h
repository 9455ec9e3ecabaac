// SPDX-License-Identifier: Apache-2.0
// DataGroups: the ranks along the data axes that train the same part of the model, and the stream
// of their collectives, beside the compute stream. With one rank nothing is sent, and the stream is
// the compute stream itself.
//
// Every view of the mesh (spec/parallel/mesh_view.h) has its own groups. The data group (all axes
// of the view) is ordered by spec::reduced_place, shards slow and copies fast, so that its rank r
// reduces the r-th part of a bucket, and the parts of the copies of a shard lie side by side in it.
// comm::SumOrder maps ranks to the leaves that they have (spec::leaves_of).
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <span>

#include "comm/communicator.h"
#include "comm/mesh.h"
#include "device/device.h"
#include "device/wait_watch.h"
#include "spec/parallel/data_parallel.h"
#include "spec/plan.h"

namespace trireme::engine {

class DataGroups {
 public:
  // `mesh` null: one rank. Collective over the world. Throws ConfigError if the mesh is not the
  // plan's.
  DataGroups(const spec::Plan&, comm::Mesh*, device::Device&, device::Stream& compute);

  using View = spec::ParamView;

  // Are gradients of this view, or of any, summed over several ranks?
  bool has_peers(View view) const { return of(view).data != nullptr; }
  bool has_peers() const { return own_stream_ != nullptr; }
  // Does closing a step need other ranks, along the data axes, tp or pp?
  bool closes_with_peers() const { return closing_ != nullptr; }
  // Can a step with its calls to other ranks be captured?
  bool can_be_captured() const { return closing_ == nullptr || closing_->can_be_captured(); }
  const spec::Coord& coord() const { return coord_; }
  device::Stream& stream() { return own_stream_ ? *own_stream_ : compute_; }
  device::Stream& compute() { return compute_; }

  // ---- order between the two streams; these do nothing if they are the same
  device::Event mark(device::Stream&) const;  // the point after all work queued so far
  void after_compute();                       // stream() waits for all work on compute
  // Compute waits for all work on stream().
  void before_compute(device::Wait = device::Wait::data);

  // ---- on stream(). REQUIRES, for sums and gathers of updates: has_peers(view); for records
  // closes_with_peers()
  // out = this rank's part of the sum over all workers; `parts` are this rank's nodes of the sum
  // tree.
  void reduce(View, device::Tensor out, std::span<const device::ConstTensor> parts);
  // Gathers the sums of all ranks that update the same parameters; `own` is this rank's part of
  // `out`. Does nothing if there are no others.
  void gather_grads(View, device::Tensor out, device::ConstTensor own);
  // Gathers the shards. Does nothing if there is one.
  void gather_params(View, device::Tensor out, device::ConstTensor own);
  void gather_records(device::Tensor out, device::ConstTensor own);
  // ---- of matrices that one rank updates for others; they are in dense buckets
  int place() const { return dense().data ? dense().data->rank() : 0; }  // in the data group
  // Gathers over the ranks that share the state; `own` is this rank's part of `out`.
  void gather_updates(device::Tensor out, device::ConstTensor own);
  // Sends `inout` of the rank with this place to all of the data group.
  void broadcast_update(device::Tensor inout, int from);
  // inout (f32) = maximum or sum over the ranks of the dense view, ordered with compute; does
  // nothing without others.
  void reduce_state(device::Tensor inout, comm::Reduce);
  // The same, always the maximum, of a view whose state is sharded. Does nothing if it is not.
  void reduce_amax(View, device::Tensor inout);
  // The same as gather_grads() and gather_params(), for reads by name: counted as other traffic.
  void gather_grads_for_host(View, device::Tensor out, device::ConstTensor own);
  void gather_for_host(View, device::Tensor out, device::ConstTensor own);

  // Memory for parts of sums that other ranks send. Not owned.
  void set_received(device::Tensor);
  device::Tensor received() const { return received_; }

  // Ends the groups of this object. REQUIRES: nothing is in flight.
  void close(comm::End) noexcept;

  // Bytes sent by this rank so far.
  const spec::TrafficTable& traffic() const { return traffic_; }

 private:
  // The groups of one view; null: this rank is alone.
  struct Groups {
    std::unique_ptr<comm::Communicator> data;
    comm::Communicator* copies = nullptr;  // ranks with the same shard
    comm::Communicator* shards = nullptr;  // ranks with different shards
    comm::SumOrder order;
  };
  const Groups& of(View view) const { return views_[static_cast<size_t>(view)]; }
  Groups& of(View view) { return views_[static_cast<size_t>(view)]; }
  const Groups& dense() const { return of(View::dense); }
  void make_groups(const spec::Plan&, comm::Mesh&, View);
  // The ranks that update the same parameters; null: this rank is alone.
  comm::Communicator* updaters(View view) {
    return updates_all_ ? of(view).data.get() : of(view).copies;
  }
  // Calls nothing if `group` is null.
  void counted(int64_t spec::TrafficTable::*kind, comm::Communicator* group,
               const std::function<void(comm::Communicator&)>& call);

  device::Stream& compute_;
  spec::Coord coord_;
  std::unique_ptr<comm::Communicator> closing_;  // null: a world of one rank
  std::array<Groups, static_cast<size_t>(View::count)> views_;
  // Declared after the communicators, which its queued work uses: its destructor drains the queue.
  std::unique_ptr<device::Stream> own_stream_;  // null: no view has peers
  bool updates_all_ = false;                    // every rank updates all parameters
  device::Tensor received_;
  spec::TrafficTable traffic_;
};

}  // namespace trireme::engine
