// SPDX-License-Identifier: Apache-2.0
#include "board/series/line_tail.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "base/system/descriptor.h"

namespace trireme::board {
namespace {

constexpr size_t block_bytes = 1 << 20;

// Returns the number of bytes read, less than asked for at the end of the file; -1 on an error.
ssize_t read_at(int descriptor, char* to, size_t bytes, int64_t offset) {
  size_t done = 0;
  while (done < bytes) {
    const ssize_t got =
        ::pread(descriptor, to + done, bytes - done, offset + static_cast<int64_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return -1;
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return static_cast<ssize_t>(done);
}

std::string last_error() { return std::error_code(errno, std::generic_category()).message(); }

}  // namespace

LineTail::LineTail(std::filesystem::path path, const base::LineLimits& limits)
    : path_(std::move(path)), limits_(limits) {}

LineTail::Place LineTail::place() const {
  return {.offset = offset_,
          .lines = lines_,
          .too_long = too_long_,
          .check_bytes = check_bytes_,
          .check = check_};
}

// Returns whether the file still has the bytes that were read last.
bool LineTail::is_same(int descriptor, uint64_t inode, int64_t size) const {
  if (size < offset_ || (inode_ != 0 && inode != inode_)) return false;
  std::array<char, sizeof(Place::check)> now{};
  const auto bytes = static_cast<size_t>(check_bytes_);
  return read_at(descriptor, now.data(), bytes, offset_ - check_bytes_) == check_bytes_ &&
         std::memcmp(now.data(), check_.data(), bytes) == 0;
}

bool LineTail::resume(const Place& place) {
  if (place.check_bytes < 0 || place.check_bytes > std::ssize(check_) ||
      place.offset < place.check_bytes) {
    return false;
  }
  // O_NONBLOCK: opening a named pipe must not wait.
  const base::Descriptor file(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (file.value() < 0 || ::fstat(file.value(), &status) != 0 || !S_ISREG(status.st_mode))
    return false;
  const Place before = this->place();
  offset_ = place.offset;
  check_ = place.check;
  check_bytes_ = place.check_bytes;
  if (!is_same(file.value(), inode_, status.st_size)) {
    offset_ = before.offset;
    check_ = before.check;
    check_bytes_ = before.check_bytes;
    return false;
  }
  lines_ = place.lines;
  too_long_ = place.too_long;
  inode_ = status.st_ino;
  exists_ = true;
  return true;
}

void LineTail::restart(const Calls& calls) {
  offset_ = lines_ = too_long_ = 0;
  check_bytes_ = 0;
  is_skipping_ = false;
  skipped_bytes_ = 0;
  inode_ = 0;
  if (calls.restarted) calls.restarted();
}

bool LineTail::poll(const Calls& calls) {
  const std::string problem_before = problem_;
  problem_.clear();
  const base::Descriptor file(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (file.value() < 0 || ::fstat(file.value(), &status) != 0) {
    if (errno != ENOENT && errno != ENOTDIR) problem_ = last_error();
    const bool was_there = exists_ || offset_ > 0;
    exists_ = false;
    if (was_there && problem_.empty()) restart(calls);
    return was_there || problem_ != problem_before;
  }
  const bool is_new = !exists_;
  exists_ = true;
  if (!S_ISREG(status.st_mode)) {
    problem_ = "is no regular file";
    return problem_ != problem_before;
  }
  bool has_changed = is_new;
  const bool has_grown = status.st_size != offset_ || status.st_ino != inode_;
  if (has_grown && !is_same(file.value(), status.st_ino, status.st_size)) {
    restart(calls);
    has_changed = true;
  }
  inode_ = status.st_ino;
  std::string buffer;
  while (offset_ < status.st_size && !is_exhausted()) {
    // At least one line fits into a block of twice the limit.
    buffer.resize(std::max(block_bytes, 2 * limits_.max_line_bytes));
    const ssize_t got = read_at(file.value(), buffer.data(), buffer.size(), offset_);
    if (got < 0) problem_ = last_error();
    if (got <= 0) break;
    const int64_t before = offset_;
    take_lines({buffer.data(), static_cast<size_t>(got)}, calls);
    if (offset_ == before) break;  // an incomplete line
    has_changed = true;
    if (calls.progress) calls.progress(offset_, status.st_size);
  }
  if (is_exhausted()) problem_ = base::skipped_text(limits_);
  return has_changed || problem_ != problem_before;
}

void LineTail::take_lines(std::string_view block, const Calls& calls) {
  size_t begin = 0;
  while (begin < block.size()) {
    const size_t end = block.find('\n', begin);
    if (end == std::string_view::npos) {
      if (!is_skipping_ && block.size() - begin <= limits_.max_line_bytes) break;
      if (!is_skipping_) ++too_long_;
      is_skipping_ = true;
      skipped_bytes_ += static_cast<int64_t>(block.size() - begin);
      begin = block.size();
      break;
    }
    if (is_skipping_) {
      is_skipping_ = false;
      skipped_bytes_ += static_cast<int64_t>(end - begin);
      ++lines_;
    } else {
      ++lines_;
      if (end - begin > limits_.max_line_bytes) {
        ++too_long_;
        skipped_bytes_ += static_cast<int64_t>(end - begin);
      } else {
        calls.line(block.substr(begin, end - begin));
      }
    }
    begin = end + 1;
  }
  if (begin == 0) return;
  offset_ += static_cast<int64_t>(begin);
  check_bytes_ = static_cast<int32_t>(std::min(begin, check_.size()));
  std::memcpy(check_.data(), block.data() + begin - static_cast<size_t>(check_bytes_),
              static_cast<size_t>(check_bytes_));
}

}  // namespace trireme::board
