// SPDX-License-Identifier: Apache-2.0
#include "base/system/regular_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <vector>

namespace trireme::base {
namespace {

constexpr size_t chunk_bytes = size_t{4} << 20;

std::string unreadable_text() {
  return "cannot be read: " + std::generic_category().message(errno);
}

// Reads up to `bytes`. Returns less at the end of the file, and -1 on an error.
ssize_t read_some(int descriptor, char* to, size_t bytes) {
  while (true) {
    const ssize_t got = ::read(descriptor, to, bytes);
    if (got >= 0 || errno != EINTR) return got;
  }
}

// Cuts a file that arrives in parts into lines.
class LineCutter {
 public:
  LineCutter(const LineLimits& limits, const std::function<void(std::string_view)>& use,
             LinesRead& result)
      : limits_(limits), use_(use), result_(result) {}

  // Returns the number of bytes at the end of the part that belong to an incomplete line, and that
  // the next part must begin with.
  size_t add(std::string_view part) {
    while (true) {
      const size_t end = part.find('\n');
      const bool is_complete = end != std::string_view::npos;
      const std::string_view line = part.substr(0, end);
      if (is_skipping_ || line.size() > limits_.max_line_bytes) {
        if (!is_skipping_) ++result_.too_long;
        skipped_bytes_ += static_cast<int64_t>(line.size());
        is_skipping_ = !is_complete;
      } else if (is_complete) {
        use_(line);
      } else {
        return line.size();
      }
      if (!is_complete || is_exhausted()) return 0;
      part.remove_prefix(end + 1);
    }
  }
  bool is_exhausted() const { return skipped_bytes_ > limits_.max_skipped_bytes; }

 private:
  const LineLimits& limits_;
  const std::function<void(std::string_view)>& use_;
  LinesRead& result_;
  bool is_skipping_ = false;  // within a line that is too long
  int64_t skipped_bytes_ = 0;
};

}  // namespace

RegularFile open_regular_file(const std::filesystem::path& path) {
  RegularFile file{.descriptor =
                       Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK))};
  struct stat status {};
  if (file.descriptor.value() < 0 || ::fstat(file.descriptor.value(), &status) != 0) {
    file.is_missing = errno == ENOENT || errno == ENOTDIR;
    // A socket cannot be opened.
    file.problem = file.is_missing                     ? "is missing"
                   : errno == ENXIO || errno == ENODEV ? "is no regular file"
                                                       : unreadable_text();
  } else if (!S_ISREG(status.st_mode)) {
    file.problem = "is no regular file";
  }
  file.bytes = status.st_size;
  return file;
}

Result<std::string> read_regular_file(const std::filesystem::path& path, int64_t max_bytes) {
  using Text = Result<std::string>;
  const RegularFile file = open_regular_file(path);
  if (!file.problem.empty()) return Text::no(file.problem);
  if (file.bytes > max_bytes) {
    return Text::no(fmt::format("has {} bytes; at most {} are read", file.bytes, max_bytes));
  }
  std::string text(static_cast<size_t>(file.bytes), '\0');
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t got = read_some(file.descriptor.value(), text.data() + done, text.size() - done);
    if (got < 0) return Text::no(unreadable_text());
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  text.resize(done);
  return text;
}

std::string skipped_text(const LineLimits& limits) {
  return fmt::format(
      "is read in part: lines of more than {} bytes have {} bytes and more, and what follows them "
      "is left out",
      limits.max_line_bytes, limits.max_skipped_bytes);
}

LinesRead read_lines(const std::filesystem::path& path, const LineLimits& limits,
                     const std::function<void(std::string_view)>& use) {
  const RegularFile file = open_regular_file(path);
  LinesRead result{.problem = file.problem, .is_missing = file.is_missing};
  if (!result.problem.empty()) return result;
  LineCutter cutter(limits, use, result);
  const auto size = static_cast<size_t>(file.bytes);
  std::vector<char> buffer(std::min(size, chunk_bytes + limits.max_line_bytes));
  size_t kept = 0;  // bytes of an incomplete line at the begin of the buffer
  for (size_t done = 0; done < size;) {
    const size_t wanted = std::min(buffer.size() - kept, size - done);
    const ssize_t got = read_some(file.descriptor.value(), buffer.data() + kept, wanted);
    if (got < 0) result.problem = unreadable_text();
    if (got <= 0) break;
    done += static_cast<size_t>(got);
    const size_t filled = kept + static_cast<size_t>(got);
    kept = cutter.add({buffer.data(), filled});
    std::memmove(buffer.data(), buffer.data() + filled - kept, kept);
    if (cutter.is_exhausted()) {
      result.problem = skipped_text(limits);
      break;
    }
  }
  return result;
}

}  // namespace trireme::base
