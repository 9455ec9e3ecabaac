// SPDX-License-Identifier: Apache-2.0
#include "data/files/output_file.h"

#include <fcntl.h>
#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "base/system/durable_file.h"

namespace trireme::data {
namespace {

constexpr size_t buffer_bytes = 1 << 20;

base::IoError cannot_write(const std::filesystem::path& path, int error) {
  return base::IoError(fmt::format("{}: cannot be written: {}", path.string(),
                                   std::generic_category().message(error)));
}

}  // namespace

OutputFile::OutputFile(const std::filesystem::path& path)
    : path_(path),
      temporary_(path.string() + fmt::format(".tmp{}", ::getpid())),
      descriptor_(::open(temporary_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
  if (descriptor_.value() < 0) throw cannot_write(path_, errno);
  std::error_code ignored;
  if (std::filesystem::exists(path_, ignored) &&
      !std::filesystem::is_regular_file(path_, ignored)) {
    std::filesystem::remove(temporary_, ignored);
    throw base::IoError(
        fmt::format("{}: cannot be written: it exists and is not a regular file", path_.string()));
  }
  pending_.reserve(buffer_bytes);
}

OutputFile::~OutputFile() {
  std::error_code ignored;
  if (!renamed_) std::filesystem::remove(temporary_, ignored);
}

void OutputFile::append(std::span<const std::byte> bytes) {
  synced_ = false;
  while (!bytes.empty()) {
    const size_t room = buffer_bytes - pending_.size();
    const auto part = bytes.first(std::min(room, bytes.size()));
    pending_.insert(pending_.end(), part.begin(), part.end());
    bytes_ += static_cast<int64_t>(part.size());
    bytes = bytes.subspan(part.size());
    if (pending_.size() == buffer_bytes) flush();
  }
}

void OutputFile::write_at(int64_t offset, std::span<const std::byte> bytes) {
  TRIREME_CHECK(offset >= 0 && offset + static_cast<int64_t>(bytes.size()) <= bytes_,
                "{} bytes at {} of {}", bytes.size(), offset, bytes_);
  flush();
  synced_ = false;
  write(offset, bytes);
}

void OutputFile::read_at(int64_t offset, std::span<std::byte> out) {
  TRIREME_CHECK(offset >= 0 && offset + static_cast<int64_t>(out.size()) <= bytes_,
                "{} bytes at {} of {}", out.size(), offset, bytes_);
  flush();
  while (!out.empty()) {
    const ssize_t done = ::pread(descriptor_.value(), out.data(), out.size(), offset);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) throw cannot_write(path_, done < 0 ? errno : EIO);
    out = out.subspan(static_cast<size_t>(done));
    offset += done;
  }
}

void OutputFile::sync() {
  flush();
  if (::fsync(descriptor_.value()) != 0) throw cannot_write(path_, errno);
  synced_ = true;
}

void OutputFile::rename() {
  TRIREME_CHECK(synced_ && !renamed_, "{}: renamed twice or before sync", path_.string());
  std::error_code error;
  std::filesystem::rename(temporary_, path_, error);
  if (error) throw cannot_write(path_, error.value());
  renamed_ = true;
  // The new name must also survive a power cut. Not every file system can sync a folder; the
  // content is safe by then.
  const auto folder = path_.has_parent_path() ? path_.parent_path() : std::filesystem::path(".");
  try {
    base::sync_folder(folder);
  } catch (const std::system_error& failure) {
    base::log_warning("{}: a power cut may undo its renaming: {}", path_.string(), failure.what());
  }
}

void OutputFile::flush() {
  write(bytes_ - static_cast<int64_t>(pending_.size()), pending_);
  pending_.clear();
}

void OutputFile::write(int64_t offset, std::span<const std::byte> bytes) {
  try {
    base::write_all_at(descriptor_.value(), offset, bytes);
  } catch (const std::system_error& error) {
    throw cannot_write(path_, error.code().value());
  }
}

}  // namespace trireme::data
