// SPDX-License-Identifier: Apache-2.0
// The ranks of a run: their number, where each runs, and how they communicate. Either this process
// is one rank of several, which a launcher started, or it runs all of them as threads.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/register/epoch_writer.h"
#include "comm/world/rank_env.h"
#include "config/config.h"
#include "device/device.h"

namespace trireme::train {

enum class RankBackend : uint8_t { none, threads, gloo, nccl };

// Returns the back end over which ranks of this configuration communicate if they are started as in
// `info`. Throws ConfigError with the reason if there is none. REQUIRES: the configuration's
// degrees were solved for info.world.
RankBackend choose_backend(const config::Config&, const comm::RankInfo&);

// What run_ranks() passes to each rank.
struct RankStart {
  int number = 0, ranks = 1;
  config::System system;    // with this rank's GPU and its share of the cores
  int device_sharers = 1;   // ranks on this rank's device
  int process_ranks = 1;    // ranks in this process
  int local_rank = 0;       // among the ranks of this host
  int host_ranks = 1;       // ranks on this host
  int memory_fd = -1;       // comm::RankInfo::memory_fd
  int peer_memory_fd = -1;  // comm::RankInfo::peer_memory_fd
  // The address of this host that other hosts of the run reach; "127.0.0.1" if there are none.
  std::string host_address = "127.0.0.1";
  // On the first rank, of the epoch; null: the run has no register.
  std::shared_ptr<comm::EpochWriter> epoch_writer;
  // Connects the rank, after its device was made; null with one rank. Compares `identity`
  // (run_identity.h) with the first rank's, and throws ConfigError that names the differences.
  std::function<std::unique_ptr<comm::Communicator>(device::Device&, const std::string& identity)>
      connect;
  int64_t epoch = 0;  // of the run; a later one continues it
  // When this process, which replaces another one, waited for its first epoch, in seconds since
  // 1970; 0: it replaces none.
  double up_at = 0;
  // Call after the epoch was aborted, when nothing uses `connect`'s result any more: waits for the
  // next epoch, replaces `next` by the start of this rank in it, and returns true; false if there
  // is none. Empty: the run ends with its first epoch.
  std::function<bool(RankStart& next)> next_epoch;
  std::function<void()> begins;          // call when the run begins to write to its folder
  std::vector<std::string> description;  // human-readable log lines
};

// Runs `body` for every rank of this process, each on its own thread if there are several. If one
// throws, the others are woken, and the first error is rethrown here; in a run of processes all
// ranks are notified.
void run_ranks(const config::Config&, const comm::RankInfo&,
               const std::function<void(const RankStart&)>& body);

}  // namespace trireme::train
