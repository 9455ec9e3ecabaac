// SPDX-License-Identifier: Apache-2.0
#include "comm/gloo/gloo_store.h"

#include <fmt/format.h>
#include <gloo/transport/tcp/device.h>

#include "base/error.h"
#include "comm/gloo.h"
#include "comm/gloo/gloo_communicator.h"

namespace trireme::comm {

void GlooStore::set(const std::string& key, const std::vector<char>& data) {
  world_.store().set(full(key), {data.begin(), data.end()});
}

std::vector<char> GlooStore::get(const std::string& key) {
  wait({key});
  const std::string value = world_.store().try_get(full(key)).value_or("");
  return {value.begin(), value.end()};
}

void GlooStore::wait(const std::vector<std::string>& keys) {
  std::vector<std::string> all;
  for (const std::string& key : keys) all.push_back(full(key));
  world_.wait_for(all, deadline_s_);
}

void GlooStore::wait(const std::vector<std::string>& keys,
                     const std::chrono::milliseconds& /*timeout*/) {
  wait(keys);
}

std::shared_ptr<gloo::transport::Device> make_gloo_device(ProcessWorld& world) {
  gloo::transport::tcp::attr attributes;
  attributes.hostname = world.info().world > 1 ? world.store().local_address() : "127.0.0.1";
  try {
    return gloo::transport::tcp::CreateDevice(attributes);
  } catch (const std::exception& error) {
    throw base::CommAborted(fmt::format("Gloo cannot use the address {} of this host: {}",
                                        attributes.hostname, error.what()));
  }
}

std::string gloo_status() { return ""; }

std::unique_ptr<Communicator> make_gloo(ProcessWorld& world, Communicator::Options options) {
  options.debug = options.debug || world.info().debug;
  return std::make_unique<GlooCommunicator>(world, make_gloo_device(world),
                                            world_group(world, "world"), std::move(options));
}

}  // namespace trireme::comm
