// SPDX-License-Identifier: Apache-2.0
// The ranks of a run: how many there are, where each runs, and over what they talk. Either this
// process is one rank of several, which a launcher started, or it runs all of them as threads.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/world/rank_env.h"
#include "config/config.h"
#include "device/device.h"

namespace trireme::train {

enum class RankBackend : uint8_t { none, threads, gloo, nccl };

// Over what the ranks of this configuration talk when they are started so. Throws ConfigError with
// the reason where they cannot. The configuration's degrees have been solved for info.world.
RankBackend choose_backend(const config::Config&, const comm::RankInfo&);

// What a rank is given to begin with.
struct RankStart {
  int number = 0, ranks = 1;
  config::System system;   // of this rank: its GPU, its share of the cores
  int device_sharers = 1;  // ranks on this rank's device
  // To be called once the device is there; null with one rank. `identity` (run_identity.h) is
  // compared with the first rank's: ConfigError names what differs.
  std::function<std::unique_ptr<comm::Communicator>(device::Device&, const std::string& identity)>
      connect;
  std::function<void()> begins;          // to be called once the run writes to its folder
  std::vector<std::string> description;  // lines for people
};

// Runs `body` for every rank of this process, on a thread of its own where there are several. If
// one throws, the others are woken, and the error that was first is thrown here; in a run of
// processes all ranks are told.
void run_ranks(const config::Config&, const comm::RankInfo&,
               const std::function<void(const RankStart&)>& body);

}  // namespace trireme::train
