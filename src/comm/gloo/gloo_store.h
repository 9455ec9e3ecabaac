// SPDX-License-Identifier: Apache-2.0
// Adapts Store to the interface of Gloo's store, and creates Gloo devices.
#pragma once

#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/device.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "comm/world/process_world.h"

namespace trireme::comm {

// All keys are below `prefix`. Waiting ends when the run is aborted.
class GlooStore final : public gloo::rendezvous::Store {
 public:
  GlooStore(ProcessWorld& world, std::string prefix, double deadline_s)
      : world_(world), prefix_(std::move(prefix)), deadline_s_(deadline_s) {}

  void set(const std::string& key, const std::vector<char>& data) override;
  std::vector<char> get(const std::string& key) override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override;

 private:
  std::string full(const std::string& key) const { return prefix_ + "/gloo/" + key; }

  ProcessWorld& world_;
  const std::string prefix_;
  const double deadline_s_;
};

// Newer releases of Gloo take the store as a shared pointer.
template <typename Context, typename Device>
void connect_full_mesh(Context& context, GlooStore& store, Device& device) {
  if constexpr (requires { context.connectFullMesh(store, device); }) {
    context.connectFullMesh(store, device);
  } else {
    // Not owned: the store outlives the call.
    const std::shared_ptr<gloo::rendezvous::Store> shared(&store, [](gloo::rendezvous::Store*) {});
    context.connectFullMesh(shared, device);
  }
}

// Returns a device on the address by which this host reaches the store. Throws CommAborted.
std::shared_ptr<gloo::transport::Device> make_gloo_device(ProcessWorld& world);

}  // namespace trireme::comm
