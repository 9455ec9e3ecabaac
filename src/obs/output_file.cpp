// SPDX-License-Identifier: Apache-2.0
#include "obs/output_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <span>
#include <system_error>
#include <utility>

#include "base/durable_file.h"
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
  if (descriptor_.value() < 0) fail(path_, errno);
}

void OutputFile::write(std::string_view bytes) {
  try {
    base::write_all(descriptor_.value(), std::as_bytes(std::span(bytes)));
  } catch (const std::system_error& error) {
    fail(path_, error.code().value());
  }
}

void OutputFile::sync() {
  if (::fsync(descriptor_.value()) != 0) fail(path_, errno);
}

}  // namespace trireme::obs
