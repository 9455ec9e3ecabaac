// SPDX-License-Identifier: Apache-2.0
// UpdateGate: keeps updates from running on what aborted collectives have left behind, and records
// which updates of the last step have run, so that the state can be trusted after an abort.
//
// An aborted collective may end like a successful one. So the world sets a flag before it ends any
// call (comm::AbortFlags), and an op that changes state runs behind one that reads the flag: if it
// is not set by then, no call of this rank has ended by an abort so far. Its peers may have closed
// gates earlier and have gone on with old parameters, so the sums with which a step is closed also
// have the flags of all ranks. Gates are
//   - one before a rank sends its sums, which adds StepSums::aborted to them;
//   - step_control (StepControlArgs::abort_flag), for all that has been summed when a step closes:
//     running norm, loss scale, histories of magnitudes, routers' biases, and updates of buckets
//     whose gradients were complete by then;
//   - a gate behind the gather of a bucket's gradients if that overlaps with the next forward
//     (Buckets::defers_updates()), and one before the bucket's update, which reads the first's
//     result;
//   - a gate before Muon's update of a bucket's matrices, whose directions other ranks compute. One
//     of these may have closed its gates since it has sent its sums: the state after a step with
//     Muon on several ranks is never trusted.
// A closed gate sets StepState::skip, which every update reads.
//
// Cost, of several ranks only: one launch of 2 us a step, two more for each of four fifths of the
// buckets for deferred AdamW, one a bucket for Muon; 4 bytes read over PCIe each. One rank has no
// gates.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "comm/abort_flags.h"
#include "comm/mesh.h"
#include "device/device.h"

namespace trireme::engine {

class UpdateGate {
 public:
  // Null or one rank: there are no gates. The flags of the mesh's world must outlive it.
  UpdateGate(device::Device&, comm::Mesh*);
  ~UpdateGate();
  UpdateGate(const UpdateGate&) = delete;
  UpdateGate& operator=(const UpdateGate&) = delete;

  // ---- by the host
  // The number of buckets whose updates follow step_control.
  void set_buckets(int count) { updates_.assign(static_cast<size_t>(count) + 1, Update::done); }
  // All gates close that have not been passed.
  void raise() noexcept;
  bool is_on() const { return flags_ != nullptr; }
  bool is_raised() const { return flag_value() > 0; }
  // Other ranks may have ended calls before the flag of this one was set.
  bool is_late() const { return flag_value() >= comm::AbortFlags::raised_late; }
  // What has become of the updates of the last step that was closed. REQUIRE: nothing is in flight.
  bool is_missing(int bucket) const { return at(bucket) == Update::missing; }
  bool has_closed() const { return updates_.back() == Update::done; }
  bool has_updated_all() const;

  // ---- ops. They do nothing without gates.
  // For StepControlArgs; absent without gates.
  device::ConstTensor abort_flag() const { return flags_ ? number(0) : device::Tensor{}; }
  // Before this rank sends its sums.
  void mark(device::Stream& compute, device::Tensor sums) const;
  // Behind the gather of the bucket's gradients. Buckets are confirmed in their order.
  void confirm(device::Stream& data, int bucket) const;
  // Before the update of a bucket that was confirmed.
  void open_confirmed(device::Stream& compute, int bucket, device::Tensor step_state) const;
  // Before updates whose inputs are in order if no rank was aborted so far.
  void open(device::Stream& compute, device::Tensor step_state) const;

  // ---- what has run, in the order of compute
  // Around step_control and what else it closes.
  void step_closes(device::Stream& compute);
  void step_closed(device::Stream& compute);
  void update_begins(device::Stream& compute, int bucket);
  void update_ends(device::Stream& compute, int bucket);

 private:
  enum class Update : uint8_t { missing, begun, done };

  Update at(int bucket) const { return updates_[static_cast<size_t>(bucket)]; }
  int32_t flag_value() const;
  device::Tensor number(int index) const;
  int32_t level(int bucket) const { return buckets() - bucket; }
  int buckets() const { return static_cast<int>(updates_.size()) - 1; }
  void set_in_order(device::Stream& compute, int bucket, Update to);

  comm::AbortFlags* flags_;  // null: no gates
  // Two numbers that the device can access: the abort flag, and level() of the first bucket that is
  // not confirmed (0: all are).
  std::optional<device::HostBuffer> numbers_;
  // By bucket, then of step_control. Written by the stream if that calls the host, otherwise when
  // the update is queued.
  std::vector<Update> updates_;
};

}  // namespace trireme::engine
