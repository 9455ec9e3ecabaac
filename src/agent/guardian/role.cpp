// SPDX-License-Identifier: Apache-2.0
#include "agent/guardian/role.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "agent/signals.h"
#include "agent/processes/spawn.h"
#include "base/error.h"
#include "base/text/json.h"

namespace trireme::agent {
namespace {

const std::string variable = "TRIREME_LAUNCH_ROLE";  // a descriptor of what the other one wrote
constexpr const char* program = "/proc/self/exe";

base::Descriptor file_with(const std::string& text) {
  base::Descriptor file(::memfd_create("trireme launch", MFD_CLOEXEC));
  if (file.value() < 0) throw system_failure("memfd_create", errno);
  for (size_t at = 0; at < text.size();) {
    const ssize_t count = ::write(file.value(), text.data() + at, text.size() - at);
    if (count < 0 && errno != EINTR) throw system_failure("what a launcher leaves", errno);
    if (count > 0) at += static_cast<size_t>(count);
  }
  return file;
}

std::string content_of(int file) {
  std::string text;
  std::array<char, 65536> part;
  while (true) {
    const ssize_t count = ::pread(file, part.data(), part.size(), static_cast<off_t>(text.size()));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw system_failure("what a launcher left", errno);
    if (count == 0) return text;
    text.append(part.data(), static_cast<size_t>(count));
  }
}

}  // namespace

std::optional<Inheritance> inheritance_from(const comm::Environment& environment) {
  const auto found = environment.find(variable);
  if (found == environment.end()) return std::nullopt;
  try {
    const base::Descriptor file(std::stoi(found->second));
    const base::Json left = base::Json::parse(content_of(file.value()));
    base::Descriptor link(left.at("link").get<int>());
    ::fcntl(link.value(), F_SETFD, FD_CLOEXEC);
    return Inheritance{.role = left.at("guardian").get<bool>() ? Role::guardian : Role::supervisor,
                       .link = std::move(link),
                       .other = left.at("other").get<pid_t>(),
                       .kept = Kept::inherited(left.at("kept").get<std::string>())};
  } catch (const std::logic_error& error) {  // of std::stoi
    throw base::IoError(fmt::format("{}={}: {}", variable, found->second, error.what()));
  } catch (const base::Json::exception& error) {
    throw base::IoError(fmt::format("{}={}: {}", variable, found->second, error.what()));
  }
}

comm::Environment without_role(comm::Environment environment) {
  environment.erase(variable);
  return environment;
}

pid_t start_in_role(const ProgramCall& call, Role role, int link, const Kept& kept) {
  const base::Json left = {{"guardian", role == Role::guardian},
                           {"link", link},
                           {"other", static_cast<int64_t>(::getpid())},
                           {"kept", kept.text()}};
  const base::Descriptor file = file_with(left.dump());
  Spawn spawn(SignalQueue::handled(), SignalQueue::changed());
  spawn.inherit(file.value());
  spawn.inherit(link);
  for (const int descriptor : kept.descriptors()) spawn.inherit(descriptor);
  comm::Environment environment = call.environment;
  environment[variable] = std::to_string(file.value());
  return spawn.start(program, call.words, environment, "the launcher cannot start itself again");
}

std::optional<base::Descriptor> watch_process(pid_t id) {
  const int descriptor = static_cast<int>(::syscall(SYS_pidfd_open, id, 0));
  if (descriptor < 0 && errno == ESRCH) return std::nullopt;
  if (descriptor < 0) throw system_failure(fmt::format("process {}", id), errno);
  return std::make_optional<base::Descriptor>(descriptor);
}

bool has_process_ended(int descriptor) {
  pollfd polled{descriptor, POLLIN, 0};
  return ::poll(&polled, 1, 0) > 0;
}

}  // namespace trireme::agent
