// SPDX-License-Identifier: Apache-2.0
#include "obs/children/command_stream.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "obs/clock.h"

namespace trireme::obs {

CommandStream::CommandStream(const std::string& command, Options options)
    : command_(command), options_(std::move(options)) {
  // A socket and not a pipe: a reader that has ended is an error code, not a signal.
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    throw base::IoError(fmt::format("metrics.command: no socket for its standard input: {}",
                                    std::generic_category().message(errno)));
  }
  input_.emplace(ends[0]);
  const base::Descriptor theirs(ends[1]);
  child_.emplace(ChildProcess::Start{
      .words = shell_words(command), .environment = options_.environment, .input = theirs.value()});
  (void)::shutdown(input_->value(), SHUT_RD);
}

CommandStream::~CommandStream() { finish(); }

void CommandStream::add(std::string_view lines) {
  if (!input_) {
    dropped_ += std::count(lines.begin(), lines.end(), '\n');
    return;
  }
  if (waiting_.size() - written_ + lines.size() > options_.max_bytes) write_some();
  if (waiting_.size() - written_ + lines.size() > options_.max_bytes) {
    dropped_ += std::count(lines.begin(), lines.end(), '\n');
    return;
  }
  waiting_ += lines;
  write_some();
}

void CommandStream::write_some() {
  while (input_ && written_ < waiting_.size()) {
    const ssize_t sent = ::send(input_->value(), waiting_.data() + written_,
                                waiting_.size() - written_, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (sent < 0) {  // it has ended, or closed its standard input
      has_ended_ = true;
      dropped_ +=
          std::count(waiting_.begin() + static_cast<ptrdiff_t>(written_), waiting_.end(), '\n');
      waiting_.clear();
      written_ = 0;
      input_.reset();
      return;
    }
    written_ += static_cast<size_t>(sent);
  }
  if (written_ < waiting_.size() && written_ < options_.max_bytes / 4) return;
  waiting_.erase(0, written_);
  written_ = 0;
}

void CommandStream::finish() {
  if (!child_) return;
  const double until = steady_seconds() + options_.grace_seconds;
  const auto left = [&] { return std::max(0.0, until - steady_seconds()); };
  for (write_some(); input_ && written_ < waiting_.size() && left() > 0; write_some()) {
    pollfd ready{.fd = input_->value(), .events = POLLOUT, .revents = 0};
    (void)::poll(&ready, 1, static_cast<int>(1 + 1e3 * std::min(left(), 0.1)));
  }
  dropped_ += std::count(waiting_.begin() + static_cast<ptrdiff_t>(written_), waiting_.end(), '\n');
  waiting_.clear();
  written_ = 0;
  input_.reset();  // the end of its input
  (void)child_->wait(left());
  child_.reset();
}

std::optional<std::string> CommandStream::news() {
  if (has_ended_ && !reported_end_) {
    reported_end_ = true;
    reported_drop_ = true;
    const bool is_over = child_ && child_->wait(0);
    return fmt::format("metrics.command no longer reads ({}); it is not started again: {}",
                       is_over ? child_->ending() : "it closed its standard input", command_);
  }
  if (dropped_ > 0 && !reported_drop_) {
    reported_drop_ = true;
    return fmt::format("metrics.command reads too slowly: lines are dropped: {}", command_);
  }
  return {};
}

}  // namespace trireme::obs
