// SPDX-License-Identifier: Apache-2.0
// Spawn: how a launcher starts a process, as the leader of a new process group.
#pragma once

#include <spawn.h>
#include <sys/types.h>

#include <csignal>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "comm/world/rank_env.h"

namespace trireme::agent {

// "what: the system's message".
base::IoError system_failure(std::string_view what, int error);

class Spawn {
 public:
  // `blocked`: the signals that the process begins with blocked; those in `defaults` have their
  // default actions.
  Spawn(const sigset_t& blocked, const sigset_t& defaults);
  ~Spawn();
  Spawn(const Spawn&) = delete;
  Spawn& operator=(const Spawn&) = delete;

  void inherit(int descriptor);  // under its own number
  void inherit_as(int descriptor, int number);
  void read_nothing();  // from standard input
  // Returns the id of the process. Throws IoError with `what`.
  pid_t start(const std::string& program, std::vector<std::string> words,
              const comm::Environment& environment, const std::string& what);

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

}  // namespace trireme::agent
