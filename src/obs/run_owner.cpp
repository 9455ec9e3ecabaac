// SPDX-License-Identifier: Apache-2.0
#include "obs/run_owner.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <random>
#include <sstream>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "base/system/regular_file.h"
#include "base/text/json.h"
#include "obs/run_dir.h"

namespace trireme::obs {
namespace {

namespace fs = std::filesystem;

std::string first_line(const fs::path& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

std::string name_of_host() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
  return name.data();
}

// Identifies the boot of this machine and the namespace of process ids.
std::string machine_id() {
  std::error_code ignored;
  return first_line("/proc/sys/kernel/random/boot_id") + " " +
         fs::read_symlink("/proc/self/ns/pid", ignored).string();
}

struct ProcessState {
  char state = 'X';  // as in /proc/PID/stat: T stopped, Z and X ended
  int64_t start = 0;
};
// Returns none if there is no such process.
std::optional<ProcessState> process_state(int64_t process) {
  const std::string line = first_line(fmt::format("/proc/{}/stat", process));
  const size_t name_end = line.rfind(')');  // the name may contain anything
  if (name_end == std::string::npos) return {};
  std::istringstream fields(line.substr(name_end + 1));
  ProcessState found;
  fields >> found.state;
  std::string skipped;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  fields >> found.start;
  if (!fields) return {};
  return found;
}

std::string new_run_id() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

int64_t mtime_ns(const struct stat& info) {
  return int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
}

// Returns the seconds since the lease was renewed, by the clock of the file system, which all hosts
// share.
double lease_age(const fs::path& folder) {
  struct stat lease {
  }, now{};
  const fs::path probe = folder / fmt::format(".clock.tmp{}", ::getpid());
  const base::Descriptor file(
      ::open(probe.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0666));
  const bool is_known = file.value() >= 0 && ::write(file.value(), "x", 1) == 1 &&
                        ::fstat(file.value(), &now) == 0 &&
                        ::stat((folder / RunOwner::record_name).c_str(), &lease) == 0;
  ::unlink(probe.c_str());
  if (!is_known) return 0;
  return static_cast<double>(mtime_ns(now) - mtime_ns(lease)) * 1e-9;
}

base::Json to_json(const OwnerRecord& record) {
  return {{"version", 1},
          {"run", record.run},
          {"epoch", record.epoch},
          {"attempt", record.attempt},
          {"host", record.host},
          {"machine", record.machine},
          {"process", record.process},
          {"process_start", record.process_start},
          {"since", record.since},
          {"released", record.is_released}};
}

// Returns a description of the holder; empty if it has ended.
std::string holder_text(const fs::path& folder, const OwnerRecord& record) {
  if (record.is_released) return "";
  std::string who = fmt::format("process {} on {}", record.process, record.host);
  if (record.machine == machine_id()) {
    const auto state = process_state(record.process);
    if (!state || !is_holder_alive(record).value_or(false)) return "";
    if (state->state == 'T' || state->state == 't') who += ", which is stopped (SIGSTOP)";
    return who;
  }
  const double age = lease_age(folder);
  if (age > RunOwner::lease_seconds) return "";
  return who + fmt::format(", last active {:.0f} s ago", std::max(0.0, age));
}

std::string refusal_text(const fs::path& folder, const OwnerRecord& record,
                         const std::string& holder) {
  return fmt::format(
      "{}: run {} is being written by {}; wait for it, stop it, or take the folder over with "
      "--take-over",
      folder.string(), record.run, holder);
}

bool is_same_file(int descriptor, const fs::path& path) {
  struct stat opened {
  }, there{};
  return ::fstat(descriptor, &opened) == 0 && ::stat(path.c_str(), &there) == 0 &&
         opened.st_ino == there.st_ino && opened.st_dev == there.st_dev;
}

struct HeldLock {
  base::Descriptor file;
  bool was_made;  // this call created the file
};
// Returns when the lock is acquired; also returns if the file system has no locks.
HeldLock take_lock(const fs::path& folder, double wait_seconds) {
  const fs::path path = folder / RunOwner::lock_name;
  const double end = steady_seconds() + wait_seconds;
  while (true) {
    constexpr int flags = O_RDWR | O_CLOEXEC | O_NONBLOCK;
    int opened = ::open(path.c_str(), flags);
    const bool was_made = opened < 0 && errno == ENOENT;
    if (was_made) opened = ::open(path.c_str(), flags | O_CREAT | O_EXCL, 0666);
    base::Descriptor file(opened);
    if (was_made && opened < 0 && errno == EEXIST) continue;  // another process was faster
    if (opened < 0) {
      throw base::IoError(fmt::format(
          "{}: the run directory cannot be written; choose another one (job.dump_folder) ({}: {})",
          folder.string(), RunOwner::lock_name, std::generic_category().message(errno)));
    }
    while (::flock(file.value(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EINTR) continue;
      if (errno != EWOULDBLOCK) {
        base::log_warning(
            "{}: this file system has no locks ({}): two runs that start at the same moment are "
            "not detected",
            path.string(), std::generic_category().message(errno));
        return {std::move(file), was_made};
      }
      if (steady_seconds() > end) {
        throw base::IoError(
            fmt::format("{}: another process is starting or committing here and did not finish "
                        "within {:g} s; wait for it, or stop it",
                        folder.string(), wait_seconds));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    // A process that was refused removes the lock file that it created: then try again.
    if (is_same_file(file.value(), path)) return {std::move(file), was_made};
  }
}

// Returns the folder and its parents that do not exist, the outermost last.
std::vector<fs::path> missing_folders(const fs::path& folder) {
  std::vector<fs::path> missing;
  std::error_code ignored;
  for (fs::path at = fs::absolute(folder, ignored).lexically_normal();
       !at.empty() && !fs::exists(at, ignored) && at != at.parent_path(); at = at.parent_path()) {
    if (at.has_filename()) missing.push_back(at);
  }
  return missing;
}

}  // namespace

std::optional<bool> is_holder_alive(const OwnerRecord& record) {
  if (record.machine != machine_id()) return {};
  const auto state = process_state(record.process);
  return state && state->start == record.process_start && state->state != 'Z' &&
         state->state != 'X';
}

std::optional<OwnerRecord> read_owner(const fs::path& folder) {
  const fs::path path = folder / RunOwner::record_name;
  constexpr int64_t max_bytes = 1 << 20;
  std::error_code failed;
  if (!fs::exists(path, failed)) return {};
  const base::Result<std::string> text = base::read_regular_file(path, max_bytes);
  if (!text) throw base::IoError(fmt::format("{}: {}", path.string(), text.reason()));
  try {
    const base::Json json = base::Json::parse(text.value());
    OwnerRecord record;
    record.run = json.at("run");
    record.epoch = json.at("epoch");
    record.attempt = json.at("attempt");
    record.host = json.at("host");
    record.machine = json.at("machine");
    record.process = json.at("process");
    record.process_start = json.at("process_start");
    record.since = json.at("since");
    record.is_released = json.at("released");
    return record;
  } catch (const base::Json::exception& error) {
    throw base::IoError(fmt::format("{}: damaged ({}); remove it if no run is using the folder",
                                    path.string(), error.what()));
  }
}

std::string RunOwner::refusal(const fs::path& folder, bool takes_over) {
  if (takes_over) return "";
  const std::optional<OwnerRecord> record = read_owner(folder);
  if (!record) return "";
  const std::string holder = holder_text(folder, *record);
  return holder.empty() ? "" : refusal_text(folder, *record, holder);
}

RunOwner::RunOwner(Key, fs::path folder, const Options& options)
    : folder_(std::move(folder)), options_(options) {}

std::unique_ptr<RunOwner> RunOwner::hold(const fs::path& folder, const Options& options) {
  // Checked again below: another process may begin between the two.
  if (const std::string why = refusal(folder, options.takes_over); !why.empty()) {
    throw base::IoError(why);
  }
  RunDir::expect_directory(folder);
  auto owner = std::make_unique<RunOwner>(Key{}, folder, options);
  owner->made_folders_ = missing_folders(folder);
  std::error_code failed;
  fs::create_directories(folder, failed);
  if (failed) {
    throw base::IoError(fmt::format("{}: the run directory cannot be created: {}", folder.string(),
                                    failed.message()));
  }
  HeldLock lock = take_lock(folder, options.wait_seconds);
  owner->made_lock_ = lock.was_made;
  owner->held_.emplace(std::move(lock.file));
  if (const std::string why = refusal(folder, options.takes_over); !why.empty()) {
    throw base::IoError(why);
  }
  owner->previous_ = read_owner(folder);
  return owner;
}

void RunOwner::begin(const std::string& run) {
  TRIREME_CHECK(held_.has_value() && record_.epoch == 0, "begin() is called once, after hold()");
  record_ = {.run = run.empty() ? new_run_id() : run,
             .epoch = previous_ ? previous_->epoch + 1 : 1,
             .attempt = previous_ && previous_->run == run ? previous_->attempt + 1 : 1,
             .host = name_of_host(),
             .machine = machine_id(),
             .process = ::getpid(),
             .process_start = process_state(::getpid()).value_or(ProcessState{}).start,
             .since = wall_seconds()};
  const fs::path path = folder_ / record_name;
  write_file(path, to_json(record_).dump(2) + "\n");
  own_file_.emplace(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (own_file_->value() < 0) {
    throw base::IoError(fmt::format("{}: cannot be opened: {}", path.string(),
                                    std::generic_category().message(errno)));
  }
  renewing_ = std::thread([this] { renew(); });
}

void RunOwner::begun() {
  TRIREME_CHECK(held_.has_value() && record_.epoch > 0, "begun() is called once, after begin()");
  held_.reset();
}

RunOwner::~RunOwner() {
  if (renewing_.joinable()) {
    {
      const std::scoped_lock lock(mutex_);
      is_ending_ = true;
    }
    changed_.notify_all();
    renewing_.join();
  }
  if (!own_file_) {
    // A run that did not begin leaves nothing behind.
    if (made_lock_) ::unlink((folder_ / lock_name).c_str());
    held_.reset();
    for (const fs::path& made : made_folders_) ::rmdir(made.c_str());  // those that are empty
    return;
  }
  try {
    guarded([this] {
      record_.is_released = true;
      write_file(folder_ / record_name, to_json(record_).dump(2) + "\n");
    });
  } catch (
      const std::exception&) {  // fenced, or the disk failed: the end of the process releases it
  }
}

void RunOwner::renew() {
  std::unique_lock lock(mutex_);
  const auto period = std::chrono::duration<double>(options_.renew_seconds);
  while (!changed_.wait_for(lock, period, [this] { return is_ending_; })) {
    // By descriptor: if another process has replaced the file, its file is not changed.
    (void)::futimens(own_file_->value(), nullptr);
  }
}

bool RunOwner::is_fenced() const {
  TRIREME_CHECK(own_file_.has_value(), "the run has not begun");
  struct stat mine {
  }, there{};
  if (::fstat(own_file_->value(), &mine) != 0) return false;
  if (::stat((folder_ / record_name).c_str(), &there) != 0) return false;  // removed by hand
  if (mine.st_ino == there.st_ino && mine.st_dev == there.st_dev) return false;
  // Another file: its content decides, because a copy restored by the user is not another owner.
  const std::optional<OwnerRecord> record = read_owner(folder_);
  return record && (record->run != record_.run || record->epoch != record_.epoch);
}

void RunOwner::guarded(const std::function<void()>& write) const {
  if (held_) {
    write();
    return;
  }
  const HeldLock lock = take_lock(folder_, 1e9);
  if (is_fenced()) {
    const std::optional<OwnerRecord> record = read_owner(folder_);
    throw base::Fenced(fmt::format(
        "{}: this run (epoch {}) was fenced: process {} on {} took over the folder as epoch {} of "
        "run {}; nothing more is written",
        folder_.string(), record_.epoch, record->process, record->host, record->epoch,
        record->run));
  }
  write();
}

}  // namespace trireme::obs
