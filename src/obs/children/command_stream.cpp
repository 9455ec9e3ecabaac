// SPDX-License-Identifier: Apache-2.0
#include "obs/children/command_stream.h"

#include <fmt/core.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
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
    : command_(command), options_(std::move(options)), started_(steady_seconds()) {
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
    dropped_ += lines_in(lines);
    return;
  }
  if (waiting_.size() - written_ + lines.size() > options_.max_bytes) write_some();
  if (waiting_.size() - written_ + lines.size() > options_.max_bytes) {
    dropped_ += lines_in(lines);
    return;
  }
  waiting_ += lines;
  write_some();
}

int64_t CommandStream::lines_in(std::string_view text) {
  return std::count(text.begin(), text.end(), '\n');
}

int64_t CommandStream::unread_bytes() const {
  int bytes = 0;
  if (!input_ || ::ioctl(input_->value(), SIOCOUTQ, &bytes) != 0) return 0;
  return bytes;
}

void CommandStream::write_some() {
  if (unread_bytes() == 0) passed_lines_ = 0;
  while (input_ && written_ < waiting_.size()) {
    const ssize_t sent = ::send(input_->value(), waiting_.data() + written_,
                                waiting_.size() - written_, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (sent < 0) {  // it has ended, or closed its standard input
      has_ended_ = true;
      dropped_ += lines_in(std::string_view(waiting_).substr(written_));
      waiting_.clear();
      written_ = 0;
      input_.reset();
      return;
    }
    passed_lines_ +=
        lines_in(std::string_view(waiting_).substr(written_, static_cast<size_t>(sent)));
    written_ += static_cast<size_t>(sent);
  }
  if (written_ < waiting_.size() && written_ < options_.max_bytes / 4) return;
  waiting_.erase(0, written_);
  written_ = 0;
}

bool CommandStream::wait_until_read(double until) {
  constexpr double look_seconds = 0.005;
  std::pair<size_t, int64_t> last;
  double changed_at = 0;
  for (write_some(); input_; write_some()) {
    const std::pair<size_t, int64_t> left{waiting_.size() - written_, unread_bytes()};
    if (left.first == 0 && left.second == 0) return true;
    const double now = steady_seconds();
    if (changed_at == 0 || left != last) changed_at = now;
    last = left;
    const double patience =
        std::max(changed_at + options_.stall_seconds, started_ + options_.start_seconds);
    if (now >= std::min(until, patience) || child_->wait(look_seconds)) return false;
  }
  return false;
}

void CommandStream::finish() {
  if (!child_) return;
  const double until = steady_seconds() + options_.grace_seconds;
  const bool was_read = wait_until_read(until);
  if (input_ && !was_read) dropped_ += passed_lines_;
  dropped_ += lines_in(std::string_view(waiting_).substr(written_));
  waiting_.clear();
  written_ = 0;
  const bool may_exit = was_read || !input_;
  input_.reset();  // the end of its input
  if (may_exit) (void)child_->wait(std::max(0.0, until - steady_seconds()));
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
