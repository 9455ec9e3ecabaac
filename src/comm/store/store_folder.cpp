// SPDX-License-Identifier: Apache-2.0
#include "comm/store/store_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/system/descriptor.h"
#include "base/system/durable_file.h"
#include "comm/store/store_wire.h"

namespace trireme::comm {
namespace {

namespace fs = std::filesystem;

base::CommAborted failure(const fs::path& path, std::string_view what) {
  return base::CommAborted(fmt::format("the store's file {} could not be {}: {}", path.string(),
                                       what, std::generic_category().message(errno)));
}

struct Found {
  std::string text;
  timespec changed{};
};

std::optional<Found> read_file(const fs::path& path) {
  const base::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.value() < 0) {
    if (errno == ENOENT || errno == ESTALE) return std::nullopt;
    throw failure(path, "opened");
  }
  Found found;
  struct stat about {};
  if (::fstat(file.value(), &about) != 0) throw failure(path, "read");
  found.changed = about.st_mtim;
  char part[4096];
  while (true) {
    const ssize_t count = ::read(file.value(), part, sizeof(part));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw failure(path, "read");
    if (count == 0) return found;
    found.text.append(part, static_cast<size_t>(count));
  }
}

double seconds(const timespec& time) {
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

FolderStore::FolderStore(fs::path folder) : folder_(std::move(folder)) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) {
    throw base::IoError(fmt::format("the store's folder {} cannot be created: {}", folder_.string(),
                                    error.message()));
  }
}

fs::path FolderStore::path_of(const std::string& key) const {
  std::string name = "k_";
  for (const char c : epoch_ < 0 ? key : epoch_key(epoch_, key)) {
    const bool is_plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                          (c >= 'A' && c <= 'Z') || c == '_' || c == '-';
    name += is_plain ? std::string(1, c) : fmt::format("%{:02x}", static_cast<unsigned char>(c));
  }
  return folder_ / name;
}

fs::path FolderStore::write_beside(const std::string& value) const {
  static std::atomic<uint64_t> number = 0;
  char host[256] = {};
  ::gethostname(host, sizeof(host) - 1);
  fs::path path = folder_ / fmt::format("t_{}_{}_{}", host, ::getpid(), number++);
  const base::Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (file.value() < 0) throw failure(path, "created");
  try {
    base::write_all(file.value(), std::as_bytes(std::span(value)));
  } catch (const std::system_error& error) {
    ::unlink(path.c_str());
    errno = error.code().value();
    throw failure(path, "written");
  }
  return path;
}

int64_t FolderStore::newest_epoch() const {
  const std::optional<Found> found = read_file(folder_ / "epoch");
  return found ? integer_from(found->text).value_or(-1) : -1;
}

void FolderStore::check_epoch() const {
  if (epoch_ < 0) return;
  if (const int64_t newest = newest_epoch(); newest > epoch_) throw fenced_by(newest, epoch_);
}

base::Descriptor FolderStore::lock() const {
  const fs::path guard = folder_ / "lock";
  base::Descriptor lock(::open(guard.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (lock.value() < 0) throw failure(guard, "opened");
  while (::flock(lock.value(), LOCK_EX) != 0) {
    if (errno != EINTR) throw failure(guard, "locked");
  }
  return lock;
}

void FolderStore::enter(int64_t epoch) {
  const base::Descriptor locked = lock();
  const int64_t newest = newest_epoch();
  if (newest > epoch) throw fenced_by(newest, epoch);
  if (newest < epoch) {
    const fs::path from = write_beside(std::to_string(epoch)), to = folder_ / "epoch";
    if (::rename(from.c_str(), to.c_str()) != 0) throw failure(to, "written");
  }
  epoch_ = epoch;
}

void FolderStore::set(const std::string& key, const std::string& value) {
  check_epoch();
  const fs::path from = write_beside(value), to = path_of(key);
  if (::rename(from.c_str(), to.c_str()) != 0) throw failure(to, "written");
}

std::string FolderStore::set_once(const std::string& key, const std::string& value) {
  check_epoch();
  const fs::path from = write_beside(value), to = path_of(key);
  const bool is_first = ::link(from.c_str(), to.c_str()) == 0;
  const int error = errno;
  ::unlink(from.c_str());
  if (is_first) return value;
  if (error != EEXIST) {
    errno = error;
    throw failure(to, "written");
  }
  return get(key, 5);
}

int64_t FolderStore::add(const std::string& key, int64_t delta) {
  const base::Descriptor locked = lock();
  const std::string old = try_get(key).value_or("0");
  const std::optional<int64_t> number = integer_from(old);
  if (!number) throw base::CommAborted(fmt::format("'{}' is '{}', not a number", key, old));
  set(key, std::to_string(*number + delta));
  return *number + delta;  // closing the descriptor releases the lock
}

std::vector<std::optional<Store::Aged>> FolderStore::read_aged(std::span<const std::string> keys) {
  check_epoch();
  // Ages are measured by the clock of the file system, which is the time of a file written now.
  const fs::path probe = write_beside("");
  const double now = seconds(read_file(probe).value_or(Found{}).changed);
  ::unlink(probe.c_str());
  std::vector<std::optional<Aged>> values;
  for (const std::string& key : keys) {
    std::optional<Found> found = read_file(path_of(key));
    if (!found) {
      values.emplace_back();
    } else {
      values.push_back(Aged{std::move(found->text), std::max(0.0, now - seconds(found->changed))});
    }
  }
  return values;
}

bool FolderStore::wait(std::span<const std::string> keys, double deadline_s) {
  const auto end = std::chrono::steady_clock::now() +
                   std::chrono::duration<double>(std::clamp(deadline_s, 0.0, 1e8));
  std::chrono::milliseconds pause(2);
  while (true) {
    check_epoch();
    const bool all = std::all_of(keys.begin(), keys.end(), [this](const std::string& key) {
      return ::access(path_of(key).c_str(), F_OK) == 0;
    });
    if (all) return true;
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(50));
  }
}

std::unique_ptr<Store> FolderStore::another() const {
  auto other = std::make_unique<FolderStore>(folder_);
  other->epoch_ = epoch_.load();
  return other;
}

}  // namespace trireme::comm
