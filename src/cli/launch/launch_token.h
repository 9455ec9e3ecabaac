// SPDX-License-Identifier: Apache-2.0
// The token of a job that `trireme launch` starts: by it ranks and launchers know each other.
#pragma once

#include <memory>
#include <string>

#include "agent/job.h"
#include "cli/verbs.h"
#include "comm/world/job_token.h"

namespace trireme::cli {

// Sets the token of the job, or where it is found: TRIREME_TOKEN; 128 random bits on one node;
// those in the run's folder, which the returned file of node 0 holds. Throws ConfigError if other
// hosts could reach the store and there is neither TRIREME_TOKEN nor a folder.
std::unique_ptr<comm::JobTokenFile> settle_token(agent::JobOptions& options,
                                                 const std::string& run_folder);

// Returns the file that a supervisor of node 0 before this one has left; null: there is none.
std::unique_ptr<comm::JobTokenFile> left_token(const agent::JobOptions& options,
                                               const std::string& run_folder);

// Sets the token by which a launcher whose call is wrong reaches the others. Node 0 serves a store
// that holds nothing but the reason, so it needs no secret.
void find_token_after_failure(const Args& args, agent::JobOptions& options);

}  // namespace trireme::cli
