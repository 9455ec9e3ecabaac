// SPDX-License-Identifier: Apache-2.0
// The two processes of a launcher whose work outlives each of them: a supervisor, which owns the
// ranks, and a guardian, which only holds what the supervisor leaves and starts it again. Each
// starts the other as the same call of this program, in a role.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "agent/guardian/kept.h"
#include "base/system/descriptor.h"
#include "comm/world/rank_env.h"

namespace trireme::agent {

enum class Role : uint8_t { supervisor, guardian };

// How this process was started by the other one.
struct Inheritance {
  Role role = Role::supervisor;
  base::Descriptor link;  // to the other one (Link)
  pid_t other = 0;
  Kept kept;
};
// None if the environment says nothing of it. Throws IoError.
std::optional<Inheritance> inheritance_from(const comm::Environment& environment);
// The environment without it, for other processes.
comm::Environment without_role(comm::Environment environment);

// A call of this program.
struct ProgramCall {
  std::vector<std::string> words;  // the first is its name
  comm::Environment environment;   // without a role
};
// Starts the call in a role, in its own process group, with the signals blocked that it will
// handle (agent/signals.h). `link`: its end. Returns its id. Throws IoError.
pid_t start_in_role(const ProgramCall& call, Role role, int link, const Kept& kept);

// A descriptor of the process; none if there is no such process. Throws IoError.
std::optional<base::Descriptor> watch_process(pid_t id);
bool has_process_ended(int descriptor);

}  // namespace trireme::agent
