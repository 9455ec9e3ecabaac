// SPDX-License-Identifier: Apache-2.0
#include "data/clean/storage/scratch_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <system_error>

#include "base/check.h"
#include "base/error.h"
#include "base/system/durable_file.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

constexpr size_t work_buffer_bytes = 1 << 20;

// Not every file system has files without a name; there, one is made and its name removed.
int open_nameless(const fs::path& folder) {
  const int nameless = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (nameless >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return nameless;
  std::string name = (folder / ".trireme-work-XXXXXX").string();
  const int named = ::mkostemp(name.data(), O_CLOEXEC);
  if (named >= 0) ::unlink(name.c_str());
  return named;
}

base::IoError work_failure(const fs::path& folder, const std::string& purpose, int error) {
  return base::IoError(fmt::format("{}: the work file of {} cannot be written or read: {}",
                                   folder.string(), purpose,
                                   std::generic_category().message(error)));
}

}  // namespace

ScratchFile::ScratchFile(const fs::path& folder, std::string purpose)
    : folder_(folder.empty() ? "." : folder),
      purpose_(std::move(purpose)),
      descriptor_(open_nameless(folder_)) {
  if (descriptor_.value() < 0) throw work_failure(folder_, purpose_, errno);
  pending_.reserve(work_buffer_bytes);
}

void ScratchFile::append(std::span<const std::byte> bytes) {
  if (pending_.size() + bytes.size() > work_buffer_bytes) flush();
  if (bytes.size() < work_buffer_bytes) {
    pending_.insert(pending_.end(), bytes.begin(), bytes.end());
  } else {
    write_at(bytes_, bytes);
  }
}

void ScratchFile::flush() {
  std::vector<std::byte> bytes;
  std::swap(bytes, pending_);
  write_at(bytes_, bytes);
  bytes.clear();
  std::swap(bytes, pending_);
}

void ScratchFile::write_at(int64_t offset, std::span<const std::byte> bytes) {
  TRIREME_CHECK(pending_.empty() && offset >= 0, "{} bytes pending, offset {}", pending_.size(),
                offset);
  try {
    base::write_all_at(descriptor_.value(), offset, bytes);
  } catch (const std::system_error& error) {
    throw work_failure(folder_, purpose_, error.code().value());
  }
  bytes_ = std::max(bytes_, offset + static_cast<int64_t>(bytes.size()));
}

void ScratchFile::read_at(int64_t offset, std::span<std::byte> out) const {
  TRIREME_CHECK(offset >= 0 && offset + static_cast<int64_t>(out.size()) <= bytes_,
                "{} bytes at {} of {}", out.size(), offset, bytes_);
  while (!out.empty()) {
    const ssize_t done = ::pread(descriptor_.value(), out.data(), out.size(), offset);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) throw work_failure(folder_, purpose_, done < 0 ? errno : EIO);
    out = out.subspan(static_cast<size_t>(done));
    offset += done;
  }
}

}  // namespace trireme::data
