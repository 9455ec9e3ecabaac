// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <span>
#include <system_error>
#include <thread>

#include "base/error.h"
#include "base/system/descriptor.h"
#include "base/system/durable_file.h"
#include "comm/clock.h"
#include "comm/register/journal_disk.h"

namespace trireme::comm {
namespace {

namespace fs = std::filesystem;

class PosixJournalDisk final : public JournalDisk {
 public:
  PosixJournalDisk(const fs::path& folder, double wait_s)
      : folder_(folder),
        path_(folder / "register.journal"),
        next_path_(folder / "register.journal.next"),
        lock_(locked(folder / "register.lock", wait_s)) {}

  std::string name() const override { return path_.string(); }

  std::optional<std::string> read() override {
    file_.emplace(::open(path_.c_str(), O_RDWR | O_CLOEXEC));
    if (file_->value() < 0) {
      const int error = errno;
      file_.reset();
      if (error == ENOENT) return std::nullopt;
      throw failure("open", error);
    }
    std::string bytes;
    std::array<char, 65536> part;
    while (true) {
      const ssize_t count =
          ::pread(file_->value(), part.data(), part.size(), static_cast<off_t>(bytes.size()));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) throw failure("read", errno);
      if (count == 0) return bytes;
      bytes.append(part.data(), static_cast<size_t>(count));
    }
  }

  void append(size_t offset, std::string_view bytes) override {
    attempt([&] {
      base::write_all_at(file_->value(), static_cast<int64_t>(offset),
                         std::as_bytes(std::span(bytes)));
    });
  }

  void truncate(size_t bytes) override {
    if (::ftruncate(file_->value(), static_cast<off_t>(bytes)) != 0) {
      throw failure("ftruncate", errno);
    }
  }

  void write_next(std::string_view bytes) override {
    next_.emplace(::open(next_path_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (next_->value() < 0) throw failure("create its successor", errno);
    attempt([&] { base::write_all(next_->value(), std::as_bytes(std::span(bytes))); });
  }

  void sync(JournalFile file) override {
    const base::Descriptor& of = file == JournalFile::current ? *file_ : *next_;
    if (::fsync(of.value()) != 0) throw failure("fsync", errno);
  }

  void replace() override {
    if (::rename(next_path_.c_str(), path_.c_str()) != 0) throw failure("rename", errno);
    file_.emplace(next_->release());
    next_.reset();
  }

  void sync_folder() override {
    attempt([&] { base::sync_folder(folder_); });
  }

 private:
  base::IoError failure(std::string_view operation, int error) const {
    return base::IoError(fmt::format("{}: {}: {}", path_.string(), operation,
                                     std::generic_category().message(error)));
  }
  template <typename Call>
  void attempt(const Call& call) const {
    try {
      call();
    } catch (const std::system_error& error) {
      throw base::IoError(fmt::format("{}: {}", path_.string(), error.what()));
    }
  }

  // The lock has a separate file: the journal is renamed, and its lock would be that of the old
  // one.
  static base::Descriptor locked(const fs::path& path, double wait_s) {
    base::Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    if (file.value() < 0) {
      throw base::IoError(
          fmt::format("{}: {}", path.string(), std::generic_category().message(errno)));
    }
    const Clock::time_point begin = Clock::now();
    while (::flock(file.value(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR) {
        throw base::IoError(
            fmt::format("{}: {}", path.string(), std::generic_category().message(errno)));
      }
      if (seconds_since(begin) >= wait_s) throw in_use(path, file.value());
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    const std::string process = fmt::format("process {}\n", ::getpid());
    const bool is_written = ::ftruncate(file.value(), 0) == 0 &&
                            ::pwrite(file.value(), process.data(), process.size(), 0) ==
                                static_cast<ssize_t>(process.size());
    if (!is_written) {
      throw base::IoError(
          fmt::format("{}: {}", path.string(), std::generic_category().message(errno)));
    }
    return file;
  }
  static base::IoError in_use(const fs::path& path, int file) {
    std::array<char, 64> text{};
    const ssize_t count = ::pread(file, text.data(), text.size() - 1, 0);
    std::string holder(text.data(), count > 0 ? static_cast<size_t>(count) : 0);
    while (holder.ends_with('\n')) holder.pop_back();
    return base::IoError(
        fmt::format("{} is locked by another launcher of this run ({}): a run has one register. "
                    "Stop that launcher, or wait until it has ended",
                    path.string(), holder.empty() ? "unknown" : holder));
  }

  const fs::path folder_, path_, next_path_;
  const base::Descriptor lock_;
  std::optional<base::Descriptor> file_, next_;
};

}  // namespace

std::unique_ptr<JournalDisk> open_journal_disk(const fs::path& folder, double wait_s) {
  return std::make_unique<PosixJournalDisk>(folder, wait_s);
}

}  // namespace trireme::comm
