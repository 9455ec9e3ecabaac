// SPDX-License-Identifier: Apache-2.0
#include "obs/output_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <span>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/system/durable_file.h"

namespace trireme::obs {

namespace {

[[noreturn]] void fail(const std::filesystem::path& path, int error) {
  throw base::IoError(fmt::format("{}: cannot be written: {}", path.string(),
                                  std::generic_category().message(error)));
}

[[noreturn]] void refuse_pipe(const std::filesystem::path& path) {
  throw base::IoError(fmt::format("{}: is a named pipe, not a file; remove it", path.string()));
}

}  // namespace

OutputFile::OutputFile(std::filesystem::path path, Mode mode)
    : path_(std::move(path)),
      // O_NONBLOCK: opening a named pipe would wait for a reader; now it fails, or is found below.
      descriptor_(::open(
          path_.c_str(),
          O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | (mode == Mode::append ? O_APPEND : O_TRUNC),
          0666)) {
  if (descriptor_.value() < 0 && errno == ENXIO) refuse_pipe(path_);
  struct stat about {};
  if (descriptor_.value() < 0 || ::fstat(descriptor_.value(), &about) != 0) fail(path_, errno);
  if (S_ISFIFO(about.st_mode)) refuse_pipe(path_);
  const int flags = ::fcntl(descriptor_.value(), F_GETFL);
  if (flags < 0 || ::fcntl(descriptor_.value(), F_SETFL, flags & ~O_NONBLOCK) != 0) {
    fail(path_, errno);
  }
}

void OutputFile::write(std::string_view bytes) {
  try {
    base::write_all(descriptor_.value(), std::as_bytes(std::span(bytes)));
  } catch (const std::system_error& error) {
    fail(path_, error.code().value());
  }
}

void OutputFile::write_all_or_none(std::string_view bytes) {
  if (partial_from_) cut_off();
  const off_t begin = ::lseek(descriptor_.value(), 0, SEEK_END);
  try {
    write(bytes);
  } catch (const base::IoError&) {
    if (begin >= 0) partial_from_ = begin;
    try {
      if (partial_from_) cut_off();
    } catch (const base::IoError&) {  // the first error is the cause
    }
    throw;
  }
}

void OutputFile::cut_off() {
  struct stat about {};
  if (::fstat(descriptor_.value(), &about) != 0) fail(path_, errno);
  if (S_ISREG(about.st_mode)) {  // a device file stores nothing
    if (::ftruncate(descriptor_.value(), *partial_from_) != 0) fail(path_, errno);
    if (::lseek(descriptor_.value(), *partial_from_, SEEK_SET) < 0) fail(path_, errno);
  }
  partial_from_.reset();
}

void OutputFile::sync() {
  if (::fsync(descriptor_.value()) != 0) fail(path_, errno);
}

}  // namespace trireme::obs
