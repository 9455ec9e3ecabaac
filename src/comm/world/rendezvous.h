// SPDX-License-Identifier: Apache-2.0
// How the processes of a run find their store. Most launchers set its address in the environment.
// Under torchrun it is on the first free one of several ports. Under mpirun of MPICH and Intel MPI
// rank 0 starts it on any free port and sends its address, with a random token, to the others
// through the launcher (comm/world/pmi.h). Where the launcher hands no token on, rank 0 writes a
// random one to the folder of the run (comm/world/job_token.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/store/store_server.h"
#include "comm/world/job_token.h"
#include "comm/world/rank_env.h"

namespace trireme::comm {

struct Rendezvous {
  RankInfo info;                             // store and token are known
  std::unique_ptr<StoreServer> server;       // already started by rank 0; otherwise null
  std::unique_ptr<JobTokenFile> token_file;  // of rank 0, if the other ranks read it
};

// Asks the launcher for the address of the store if the environment does not contain it, and waits
// for the token. Throws ConfigError if there is no address, or no token for a store that other
// hosts can reach; CommAborted or IoError at the deadline; and Stopped when info.stop is set.
Rendezvous rendezvous(const RankInfo& info, double deadline_s);

// For a rank that has failed before it joined. The store of such a rank 0 holds nothing but the
// reason, so it needs no secret: its token is that of the environment, which other ranks try if
// they find no file.
Rendezvous rendezvous_to_report(const RankInfo& info, double deadline_s);

// Returns the options of the run's store, which listens only on its address if possible. REQUIRES:
// info.store is host and port.
StoreServer::Options store_options(const RankInfo& info);

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
