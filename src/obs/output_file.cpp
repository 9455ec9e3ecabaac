// SPDX-License-Identifier: Apache-2.0
#include "obs/output_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace trireme::obs {

namespace {

[[noreturn]] void fail(const std::filesystem::path& path, int error) {
  throw base::IoError(fmt::format("{}: cannot be written: {}", path.string(),
                                  std::generic_category().message(error)));
}

}  // namespace

OutputFile::OutputFile(std::filesystem::path path, Mode mode)
    : path_(std::move(path)),
      descriptor_(::open(
          path_.c_str(),
          O_WRONLY | O_CREAT | O_CLOEXEC | (mode == Mode::append ? O_APPEND : O_TRUNC), 0666)) {
  if (descriptor_ < 0) fail(path_, errno);
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void OutputFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(path_, errno);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

void OutputFile::sync() {
  if (::fsync(descriptor_) != 0) fail(path_, errno);
}

}  // namespace trireme::obs
