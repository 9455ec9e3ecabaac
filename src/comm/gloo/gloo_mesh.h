// SPDX-License-Identifier: Apache-2.0
// Connects ranks by Gloo, and creates Gloo devices.
#pragma once

#include <gloo/context.h>
#include <gloo/transport/device.h>

#include <memory>
#include <thread>
#include <vector>

#include "comm/world/process_group.h"

namespace trireme::comm {

// A context whose ranks are connected in pairs. Other than gloo::rendezvous::Context, which waits
// for a peer until its deadline, it gives up as soon as the run is aborted or this rank is
// requested to stop: its peer may have done the same.
class GlooMesh final : public gloo::Context {
 public:
  // REQUIRES: at least two ranks. Throws CommAborted when the run is aborted, Stopped when the
  // rank's info.stop is set, and Gloo's exceptions.
  GlooMesh(ProcessWorld& world, const ProcessGroup& group,
           std::shared_ptr<gloo::transport::Device> device, double deadline_s);
  ~GlooMesh() override;

  // Begins to close all connections, after an abort: peers that wait for this rank see it. Calls
  // that begin later throw. Once.
  void close_pairs() noexcept;

 private:
  template <typename Each>
  void for_each_pair(const Each& each) noexcept;
  void connect(ProcessWorld& world, const ProcessGroup& group, double deadline_s);

  std::vector<std::thread> closing_;
};

// Returns a device on the address by which this host reaches the store. Throws CommAborted.
std::shared_ptr<gloo::transport::Device> make_gloo_device(ProcessWorld& world);

}  // namespace trireme::comm
