// SPDX-License-Identifier: Apache-2.0
// How the processes of a run find their store. Most launchers set its address in the environment.
// Under torchrun it is on the first free one of several ports. Under mpirun of MPICH and Intel MPI
// rank 0 starts it on any free port and sends its address, with a random token, to the others
// through the launcher (comm/world/pmi.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/store/store_server.h"
#include "comm/world/rank_env.h"

namespace trireme::comm {

struct Rendezvous {
  RankInfo info;                        // store and token are known
  std::unique_ptr<StoreServer> server;  // already started by rank 0; otherwise null
};

// Asks the launcher for the address of the store if the environment does not contain it. Throws
// ConfigError if neither has it, IoError if the launcher does not reply within the deadline, and
// Stopped when info.stop is set.
Rendezvous rendezvous(const RankInfo& info, double deadline_s);

// Returns the options of the run's store, which listens only on its address if possible. REQUIRES:
// info.store is host and port.
StoreServer::Options store_options(const RankInfo& info);

// 128 random bits in hexadecimal digits.
std::string random_token();

// What rank 0 publishes: "token/host:port,host:port", the addresses in the order in which others
// should try them.
struct StoreEndpoints {
  std::string token;
  std::vector<std::string> addresses;

  std::string text() const;
};
// Throws IoError with the text found.
StoreEndpoints parse_store_endpoints(const std::string& text);

}  // namespace trireme::comm
