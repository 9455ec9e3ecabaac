// SPDX-License-Identifier: Apache-2.0
#include "ckpt/disk/posix_disk.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "base/system/descriptor.h"

namespace trireme::ckpt {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& what, const fs::path& path, int error) {
  const std::string text =
      fmt::format("cannot {} {}: {}", what, path.string(), std::generic_category().message(error));
  if (error == ENOSPC || error == EDQUOT) throw NoSpace(text);
  throw base::IoError(text);
}

bool is_aligned(int64_t offset, const std::byte* memory, size_t bytes) {
  return ((static_cast<uint64_t>(offset) | reinterpret_cast<uintptr_t>(memory) | bytes) %
          static_cast<uint64_t>(page_bytes)) == 0;
}

bool is_regular(int descriptor) {
  struct stat info {};
  return descriptor >= 0 && ::fstat(descriptor, &info) == 0 && S_ISREG(info.st_mode);
}

class PosixFile final : public DiskFile {
 public:
  // Refuses anything but a regular file: opening a pipe would block until a writer appears.
  // O_NONBLOCK prevents that and has no effect on regular files.
  PosixFile(fs::path path, int flags, const PosixDiskOptions& options)
      : path_(std::move(path)),
        plain_(::open(path_.c_str(), flags | O_CLOEXEC | O_NONBLOCK, 0666)),
        // The name exists from here on.
        direct_(
            !is_regular(plain_.value()) || !options.direct
                ? -1
                : ::open(path_.c_str(), (flags & O_ACCMODE) | O_DIRECT | O_CLOEXEC | O_NONBLOCK)),
        is_direct_(is_regular(direct_.value())) {
    if (plain_.value() < 0) fail((flags & O_CREAT) != 0 ? "create" : "open", path_, errno);
    if (!is_regular(plain_.value())) {
      throw base::IoError(fmt::format("{} is not a file", path_.string()));
    }
  }

  // Preallocates, so that parallel writes do not wait for each other to grow the file, and a full
  // disk is detected before anything is written.
  void reserve(int64_t bytes) {
    if (bytes == 0) return;
    const auto refuse = [&](int error) {
      fail(fmt::format("set {} bytes aside for", bytes), path_, error);
    };
    // ext4 takes all that is free before it reports that it is not enough; other programs then find
    // the disk full for a moment.
    if (is_more_than_free(bytes)) refuse(ENOSPC);
    if (::fallocate(plain_.value(), 0, 0, bytes) == 0) return;
    if (errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL) refuse(errno);
    if (::ftruncate(plain_.value(), bytes) != 0) fail("set the size of", path_, errno);
  }

  void write_at(int64_t offset, std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const bool direct = is_direct_.load() && is_aligned(offset, bytes.data(), bytes.size());
      const ssize_t done =
          ::pwrite(descriptor(direct), bytes.data(), std::min(bytes.size(), call_bytes), offset);
      if (done < 0 && retry(direct)) continue;
      if (done < 0)
        fail(fmt::format("write {} bytes at {} of", bytes.size(), offset), path_, errno);
      bytes = bytes.subspan(static_cast<size_t>(done));
      offset += done;
    }
  }

  void read_at(int64_t offset, std::span<std::byte> bytes) override {
    while (!bytes.empty()) {
      const bool direct = is_direct_.load() && is_aligned(offset, bytes.data(), bytes.size());
      const ssize_t done =
          ::pread(descriptor(direct), bytes.data(), std::min(bytes.size(), call_bytes), offset);
      if (done < 0 && retry(direct)) continue;
      if (done < 0) fail(fmt::format("read {} bytes at {} of", bytes.size(), offset), path_, errno);
      if (done == 0) {
        throw base::IoError(fmt::format("cannot read {} bytes at {} of {}: it ends before",
                                        bytes.size(), offset, path_.string()));
      }
      bytes = bytes.subspan(static_cast<size_t>(done));
      offset += done;
    }
  }

  int64_t size() override {
    struct stat info {};
    if (::fstat(plain_.value(), &info) != 0) fail("ask for the size of", path_, errno);
    return info.st_size;
  }

  void sync() override {
    if (::fsync(plain_.value()) != 0) fail("sync", path_, errno);
  }

 private:
  static constexpr size_t call_bytes = size_t{1} << 30;  // of one system call

  bool is_more_than_free(int64_t bytes) const {
    struct statvfs space {};
    // Some file systems do not know their size.
    if (::fstatvfs(plain_.value(), &space) != 0 || space.f_blocks == 0) return false;
    return static_cast<uint64_t>(bytes) / space.f_frsize > space.f_bfree;
  }
  int descriptor(bool direct) const { return direct ? direct_.value() : plain_.value(); }
  // A file system may accept O_DIRECT in open() and refuse it in the transfer.
  bool retry(bool direct) {
    if (errno == EINTR) return true;
    if (direct && errno == EINVAL) {
      is_direct_.store(false);
      return true;
    }
    return false;
  }

  fs::path path_;
  base::Descriptor plain_, direct_;
  std::atomic<bool> is_direct_;
};

class PosixDisk final : public Disk {
 public:
  explicit PosixDisk(const PosixDiskOptions& options) : options_(options) {}

  std::unique_ptr<DiskFile> create(const Path& path, int64_t bytes) override {
    auto file = std::make_unique<PosixFile>(path, O_RDWR | O_CREAT | O_EXCL, options_);
    file->reserve(bytes);
    return file;
  }

  std::unique_ptr<DiskFile> open(const Path& path) override {
    return std::make_unique<PosixFile>(path, O_RDONLY, options_);
  }

  void make_folder(const Path& path) override {
    if (::mkdir(path.c_str(), 0777) != 0) fail("make the folder", path, errno);
  }

  void sync_folder(const Path& path) override {
    const base::Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (folder.value() < 0 || ::fsync(folder.value()) != 0) fail("sync the folder", path, errno);
  }

  void rename(const Path& from, const Path& to) override {
    const std::string what = fmt::format("rename {} to", from.string());
    if (exists(to)) fail(what, to, EEXIST);
    if (::rename(from.c_str(), to.c_str()) != 0) fail(what, to, errno);
  }

  void remove_file(const Path& path) override {
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) fail("remove", path, errno);
  }

  void remove_folder(const Path& path) override {
    if (::rmdir(path.c_str()) != 0 && errno != ENOENT) fail("remove the folder", path, errno);
  }

  std::vector<DiskEntry> list(const Path& path) override {
    std::vector<DiskEntry> entries;
    std::error_code error;
    for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
      std::error_code gone;  // an entry that another process removes meanwhile is not a folder
      const fs::file_status status = at->symlink_status(gone);
      entries.push_back(
          {at->path().filename().string(), fs::is_directory(status), fs::is_symlink(status)});
    }
    if (error) fail("list the folder", path, error.value());
    std::ranges::sort(entries, {}, &DiskEntry::name);
    return entries;
  }

  bool exists(const Path& path) override {
    struct stat info {};
    if (::lstat(path.c_str(), &info) == 0) return true;
    if (errno != ENOENT && errno != ENOTDIR) fail("look for", path, errno);
    return false;
  }

  bool is_link(const Path& path) override {
    std::error_code ignored;  // an entry that cannot be examined cannot be removed either
    return fs::is_symlink(fs::symlink_status(path, ignored));
  }

 private:
  PosixDiskOptions options_;
};

}  // namespace

std::unique_ptr<Disk> posix_disk(const PosixDiskOptions& options) {
  return std::make_unique<PosixDisk>(options);
}

}  // namespace trireme::ckpt
