// SPDX-License-Identifier: Apache-2.0
#include "base/system/durable_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/system/descriptor.h"

namespace trireme::base {

void write_all(int descriptor, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw std::system_error(errno, std::generic_category(), "write");
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

void write_all_at(int descriptor, int64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(descriptor, bytes.data(), bytes.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw std::system_error(errno, std::generic_category(), "write");
    bytes = bytes.subspan(static_cast<size_t>(written));
    offset += written;
  }
}

void write_synced(const std::filesystem::path& path, std::string_view text) {
  const Descriptor descriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (descriptor.value() < 0) throw std::system_error(errno, std::generic_category(), "open");
  write_all(descriptor.value(), std::as_bytes(std::span(text)));
  if (::fsync(descriptor.value()) != 0) {
    throw std::system_error(errno, std::generic_category(), "fsync");
  }
}

void sync_folder(const std::filesystem::path& folder) {
  const Descriptor descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (descriptor.value() < 0 || ::fsync(descriptor.value()) != 0) {
    throw std::system_error(errno, std::generic_category(), "fsync of the folder");
  }
}

}  // namespace trireme::base
