// SPDX-License-Identifier: Apache-2.0
#include "agent/processes/spawn.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <system_error>

namespace trireme::agent {
namespace {

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> all;
  for (std::string& word : words) all.push_back(word.data());
  all.push_back(nullptr);
  return all;
}

}  // namespace

base::IoError system_failure(std::string_view what, int error) {
  return base::IoError(fmt::format("{}: {}", what, std::generic_category().message(error)));
}

Spawn::Spawn(const sigset_t& blocked, const sigset_t& defaults) {
  ::posix_spawn_file_actions_init(&actions_);
  ::posix_spawnattr_init(&attributes_);
  ::posix_spawnattr_setsigmask(&attributes_, &blocked);
  ::posix_spawnattr_setsigdefault(&attributes_, &defaults);
  ::posix_spawnattr_setpgroup(&attributes_, 0);
  ::posix_spawnattr_setflags(
      &attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
}

Spawn::~Spawn() {
  ::posix_spawn_file_actions_destroy(&actions_);
  ::posix_spawnattr_destroy(&attributes_);
}

void Spawn::inherit(int descriptor) { inherit_as(descriptor, descriptor); }

void Spawn::inherit_as(int descriptor, int number) {
  ::posix_spawn_file_actions_adddup2(&actions_, descriptor, number);
}

void Spawn::read_nothing() {
  ::posix_spawn_file_actions_addopen(&actions_, 0, "/dev/null", O_RDONLY, 0);
}

pid_t Spawn::start(const std::string& program, std::vector<std::string> words,
                   const comm::Environment& environment, const std::string& what) {
  std::vector<std::string> variables;
  for (const auto& [name, value] : environment) variables.push_back(name + "=" + value);
  pid_t id = -1;
  const int error = ::posix_spawn(&id, program.c_str(), &actions_, &attributes_,
                                  pointers(words).data(), pointers(variables).data());
  if (error != 0) throw system_failure(what, error);
  return id;
}

}  // namespace trireme::agent
