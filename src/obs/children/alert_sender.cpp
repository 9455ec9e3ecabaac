// SPDX-License-Identifier: Apache-2.0
#include "obs/children/alert_sender.h"

#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/system/descriptor.h"
#include "base/system/durable_file.h"
#include "obs/clock.h"

namespace trireme::obs {
namespace {

// Further alerts are dropped: a command that hangs must not fill the machine with processes.
constexpr size_t max_running = 16;

std::vector<std::string> post_words(const std::string& address) {
  return {
      "curl",          "--silent",   "--show-error", "--fail",   "--output",
      "/dev/null",     "--max-time", "10",           "--header", "Content-Type: application/json",
      "--data-binary", "@-",         "--",           address};
}

// Returns an anonymous file with the text, read from its beginning.
base::Descriptor file_of(std::string_view text) {
  base::Descriptor file(::memfd_create("alert", MFD_CLOEXEC));
  if (file.value() < 0) throw base::IoError("no memory file for an alert");
  base::write_all(file.value(), std::as_bytes(std::span(text)));
  if (::lseek(file.value(), 0, SEEK_SET) < 0) throw base::IoError("an alert cannot be rewound");
  return file;
}

}  // namespace

AlertSender::AlertSender(Options options) : options_(std::move(options)) {}

AlertSender::~AlertSender() { finish(); }

void AlertSender::check(const std::string& webhook, const std::vector<std::string>& environment) {
  if (webhook.empty()) return;
  ChildProcess look(
      {.words = shell_words("command -v curl > /dev/null"), .environment = environment});
  constexpr double max_seconds = 10;
  if (look.wait(max_seconds) && look.is_good()) return;
  throw base::ConfigError(fmt::format(
      "alerts.webhook = \"{}\": curl posts alerts, and it is not installed; install the "
      "package curl, or use alerts.command",
      webhook));
}

void AlertSender::send(std::string_view line) {
  remove_ended();
  if (!options_.command.empty()) start(shell_words(options_.command), line);
  if (!options_.webhook.empty()) start(post_words(options_.webhook), line);
}

void AlertSender::start(const std::vector<std::string>& words, std::string_view line) {
  if (running_.size() >= max_running) {
    base::log_warning("an alert was not sent: {} earlier ones are still being sent",
                      running_.size());
    return;
  }
  try {
    const base::Descriptor input = file_of(line);
    running_.push_back(
        {words.front() == "curl" ? "alerts.webhook" : "alerts.command",
         ChildProcess(
             {.words = words, .environment = options_.environment, .input = input.value()})});
  } catch (const std::exception& error) {
    base::log_warning("an alert was not sent: {}", error.what());
  }
}

void AlertSender::remove_ended() {
  std::erase_if(running_, [](Running& running) {
    if (running.child.is_running()) return false;
    if (!running.child.is_good()) {
      base::log_warning("{} failed: {}", running.what, running.child.ending());
    }
    return true;
  });
}

void AlertSender::finish() {
  const double until = steady_seconds() + options_.grace_seconds;
  for (Running& running : running_) {
    (void)running.child.wait(std::max(0.0, until - steady_seconds()));
  }
  remove_ended();
  for (const Running& running : running_) {
    base::log_warning("{} has not ended {:g} s after the run, and is killed", running.what,
                      options_.grace_seconds);
  }
  running_.clear();
}

}  // namespace trireme::obs
