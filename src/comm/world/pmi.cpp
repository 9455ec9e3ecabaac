// SPDX-License-Identifier: Apache-2.0
#include "comm/world/pmi.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "comm/store/store_socket.h"
#include "comm/store/store_wire.h"

namespace trireme::comm {
namespace {

// A reply is one line with a key, a value and a few words.
constexpr size_t max_pmi_line = 64 << 10;

int checked_socket(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) == 0 && S_ISSOCK(status.st_mode)) return descriptor;
  throw base::ConfigError(fmt::format(
      "PMI_FD={} in the environment is not a connection to MPI's launcher: start this program by "
      "mpirun directly, or set MASTER_ADDR and MASTER_PORT (an address of rank 0) for all ranks",
      descriptor));
}

// Returns a line as error messages show it: printable and short.
std::string shown(std::string_view line) {
  constexpr size_t max_shown = 80;
  std::string text(line.substr(0, max_shown));
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return line.size() > max_shown ? text + "..." : text;
}

bool is_word(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(),
                                      [](char c) { return c > ' ' && c <= '~' && c != '='; });
}

// "cmd=get_result rc=0 value=x" -> by name. Words without '=' are left out.
std::map<std::string, std::string> fields_of(std::string_view line) {
  std::map<std::string, std::string> fields;
  while (!line.empty()) {
    const std::string_view word = line.substr(0, line.find(' '));
    line.remove_prefix(std::min(line.size(), word.size() + 1));
    const size_t equals = word.find('=');
    if (equals != std::string_view::npos) {
      fields.emplace(word.substr(0, equals), word.substr(equals + 1));
    }
  }
  return fields;
}

}  // namespace

Pmi::Pmi(int descriptor, const Options& options)
    : socket_(checked_socket(descriptor)),
      options_(options),
      end_(socket_time_after(options.deadline_s)) {
  ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init");
  const Message maxes = ask("cmd=get_maxes", "maxes");
  const auto size_of = [&](const char* name, size_t fallback) {
    const auto found = maxes.find(name);
    const std::optional<int64_t> value =
        found == maxes.end() ? std::nullopt : integer_from(found->second);
    return value && *value > 0 ? static_cast<size_t>(*value) : fallback;
  };
  max_key_ = size_of("keylen_max", max_key_);
  max_value_ = size_of("vallen_max", max_value_);
  name_ = ask("cmd=get_my_kvsname", "my_kvsname")["kvsname"];
  if (name_.empty()) fail("it did not name the job's key-value space");
}

void Pmi::put(const std::string& key, const std::string& value) {
  TRIREME_CHECK(is_word(key) && is_word(value), "PMI: '{}' = '{}'", key, value);
  // Lengths count the zero at the end.
  if (key.size() >= max_key_ || value.size() >= max_value_) {
    fail(
        fmt::format("it allows keys below {} and values below {} characters; '{}' has {} and "
                    "{}",
                    max_key_, max_value_, key, key.size(), value.size()));
  }
  ask(fmt::format("cmd=put kvsname={} key={} value={}", name_, key, value), "put_result");
}

void Pmi::barrier() { ask("cmd=barrier_in", "barrier_out"); }

std::string Pmi::get(const std::string& key) {
  return ask(fmt::format("cmd=get kvsname={} key={}", name_, key), "get_result")["value"];
}

void Pmi::finalize() { ask("cmd=finalize", "finalize_ack"); }

Pmi::Message Pmi::ask(const std::string& line, const std::string& answer) {
  send(line + "\n");
  const std::string text = receive_line();
  Message message = fields_of(text);
  if (message["cmd"] != answer) {
    fail(fmt::format("unexpected reply to '{}': '{}'", shown(line), shown(text)));
  }
  const auto code = message.find("rc");
  if (code != message.end() && code->second != "0") {
    fail(fmt::format("'{}' failed: '{}'", shown(line), shown(text)));
  }
  return message;
}

void Pmi::send(std::string line) {
  while (!line.empty()) {
    wait_for(POLLOUT);
    const ssize_t sent =
        ::send(socket_.value(), line.data(), line.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (sent < 0) fail(error_text(errno));
    line.erase(0, static_cast<size_t>(sent));
  }
}

std::string Pmi::receive_line() {
  while (true) {
    const size_t end = received_.find('\n');
    if (end != std::string::npos) {
      const std::string line = received_.substr(0, end);
      received_.erase(0, end + 1);
      return line;
    }
    if (received_.size() > max_pmi_line) {
      fail(fmt::format("it sent {} bytes without an end of line: '{}'", received_.size(),
                       shown(received_)));
    }
    wait_for(POLLIN);
    std::array<char, 4096> bytes;
    const ssize_t count = ::recv(socket_.value(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (count < 0) fail(error_text(errno));
    if (count == 0) fail("it has closed the connection");
    received_.append(bytes.data(), static_cast<size_t>(count));
  }
}

void Pmi::wait_for(short events) {
  constexpr double slice_seconds = 0.1;  // between checks of `stop`
  while (true) {
    if (options_.stop != nullptr && options_.stop->load()) {
      throw base::Stopped("stopped while waiting for other ranks");
    }
    const auto now = SocketClock::now();
    if (now >= end_) {
      fail(fmt::format("no reply within {:g} s; another rank may not have started",
                       options_.deadline_s));
    }
    if (is_socket_ready(socket_.value(), events, std::min(end_, socket_time_after(slice_seconds))))
      return;
  }
}

void Pmi::fail(const std::string& what) const {
  throw base::IoError(fmt::format(
      "asking MPI's launcher for the other ranks failed (PMI, descriptor {}): {}. To do without "
      "it, set MASTER_ADDR and MASTER_PORT (an address of rank 0) for all ranks",
      socket_.value(), what));
}

}  // namespace trireme::comm
