// SPDX-License-Identifier: Apache-2.0
// The names under which a supervisor keeps things (keeper.h).
#pragma once

namespace trireme::agent {

constexpr const char* kept_job = "job";              // what the call alone does not tell
constexpr const char* kept_start = "start";          // of a start of the job: see Supervisor
constexpr const char* kept_life_line = "life line";  // both ends
constexpr const char* kept_endings = "endings";
constexpr const char* kept_sockets = "store";      // that it listens on
constexpr const char* kept_store_log = "store log";
constexpr const char* kept_process = "process/";  // and a number: a rank or a spare
constexpr const char* kept_memory = "memory/";    // and a slot: copies of a rank's state

}  // namespace trireme::agent
