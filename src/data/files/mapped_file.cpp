// SPDX-License-Identifier: Apache-2.0
#include "data/files/mapped_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <system_error>

#include "base/error.h"
#include "base/system/descriptor.h"

namespace trireme::data {
namespace {

base::IoError cannot_read(const std::filesystem::path& path, int error) {
  return base::IoError(
      fmt::format("{}: cannot be read: {}", path.string(), std::generic_category().message(error)));
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  // A named pipe would block the open; it is refused below like every other special file.
  const base::Descriptor descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (descriptor.value() < 0) throw cannot_read(path, errno);
  if (::fstat(descriptor.value(), &opened_) != 0) throw cannot_read(path, errno);
  if (!S_ISREG(opened_.st_mode)) {
    throw base::IoError(fmt::format("{}: is {}, not a file with data", path.string(),
                                    S_ISDIR(opened_.st_mode) ? "a folder" : "a special file"));
  }
  const auto size = static_cast<size_t>(opened_.st_size);
  if (size == 0) return;  // an empty file cannot be mapped; the span is empty
  void* start = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor.value(), 0);
  if (start == MAP_FAILED) throw cannot_read(path, errno);
  start_ = {static_cast<const std::byte*>(start), Unmap{size}};
  range_ = base::MappedRange(bytes(), path.string());
}

std::string MappedFile::changed() const {
  struct stat now {};
  if (::stat(path_.c_str(), &now) != 0) {
    return fmt::format("{}: {} since it was opened", path_.string(),
                       errno == ENOENT
                           ? "was removed"
                           : "cannot be examined (" + std::generic_category().message(errno) + ")");
  }
  if (now.st_dev != opened_.st_dev || now.st_ino != opened_.st_ino) {
    return fmt::format("{}: was replaced by another file since it was opened", path_.string());
  }
  if (now.st_size != opened_.st_size) {
    return fmt::format("{}: has {} bytes and had {} when it was opened", path_.string(),
                       now.st_size, opened_.st_size);
  }
  if (now.st_mtim.tv_sec != opened_.st_mtim.tv_sec ||
      now.st_mtim.tv_nsec != opened_.st_mtim.tv_nsec) {
    // Includes the time, so that another write is another change.
    return fmt::format("{}: was written since it was opened, last at {}.{:09}", path_.string(),
                       now.st_mtim.tv_sec, now.st_mtim.tv_nsec);
  }
  return {};
}

void MappedFile::expect_one_pass() const {
  if (start_) {
    ::madvise(const_cast<std::byte*>(start_.get()), start_.get_deleter().size, MADV_SEQUENTIAL);
  }
}

void MappedFile::Unmap::operator()(const std::byte* start) const noexcept {
  ::munmap(const_cast<std::byte*>(start), size);
}

}  // namespace trireme::data
