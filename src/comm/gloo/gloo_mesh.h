// SPDX-License-Identifier: Apache-2.0
// Connects the ranks of a group by Gloo, and creates Gloo devices.
#pragma once

#include <gloo/context.h>
#include <gloo/transport/device.h>

#include <memory>

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

 private:
  void connect(ProcessWorld& world, const ProcessGroup& group, double deadline_s);
};

// Returns a device on the address by which this host reaches the store. Throws CommAborted.
std::shared_ptr<gloo::transport::Device> make_gloo_device(ProcessWorld& world);

}  // namespace trireme::comm
