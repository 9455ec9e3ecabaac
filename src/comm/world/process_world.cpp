// SPDX-License-Identifier: Apache-2.0
#include "comm/world/process_world.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/system/start_thread.h"
#include "comm/clock.h"
#include "comm/failure/verdict.h"

namespace trireme::comm {
namespace {

// Count the ranks that have found that the run has failed: by a broken connection, by a deadline.
const std::string judges_key = "judges";
const std::string deadline_judges_key = "judges_by_deadline";
// The longest that a rank waits for the verdict of other ranks.
constexpr double max_agreement_seconds = 30;

// How many ranks have set their abort flags; exists once all have that may be alive; exists once a
// rank has ended its calls without waiting for all.
constexpr const char* flags_set_key = "abort_flags/set";
constexpr const char* all_flags_key = "abort_flags/all";
constexpr const char* late_flags_key = "abort_flags/late";
// So many heartbeats a rank waits for the flags of others: a rank learns of the abort with one.
constexpr double flag_beats = 4;

void pause() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

void write_record(const FlightRecorder& recorder, const std::filesystem::path& folder) noexcept {
  try {
    std::filesystem::create_directories(folder);
    recorder.write(folder);
  } catch (const std::exception& error) {
    base::log(base::LogLevel::warning, fmt::format("the flight record of rank {} is lost: {}",
                                                   recorder.world_rank(), error.what()));
  }
}

}  // namespace

ProcessWorld::ProcessWorld(Rendezvous found, Options options)
    : info_(found.info),
      options_(options),
      activity_(base::RankActivity::current()),
      recorder_(std::make_shared<FlightRecorder>(info_.rank)),
      token_file_(std::move(found.token_file)),
      server_(std::move(found.server)) {
  if (info_.store.empty()) return;
  std::signal(SIGPIPE, SIG_IGN);
  const StoreAddress address = parse_store_address(info_.store);
  if (info_.hosts_store && server_ == nullptr) {
    server_ = std::make_unique<StoreServer>(store_options(info_));
  }
  StoreOptions reaching{.deadline_s = options_.deadline_s,
                        .reply_timeout_s = std::max(30.0, options_.deadline_s),
                        .outage_s = info_.outage_s(),
                        .is_leaving = &is_leaving_,
                        .token = info_.token,
                        .stop = info_.stop};
  if (info_.local_rank == 0) {
    reaching.on_waiting = [this](double waited_s) {
      base::log_info("waiting for the store at {} ({:.0f} s of {:.0f} s)", info_.store, waited_s,
                     options_.deadline_s);
    };
  }
  store_ = open_store(address, reaching);
  store_->enter(info_.epoch);
  heartbeat_store_ = store_->another();
  verdict_store_ = store_->another();
  membership_ = membership_of(*heartbeat_store_);
  membership_->join(std::to_string(info_.rank));
  publish(false);
  heartbeat_thread_ =
      base::start_thread("that reports this rank's progress", [this] { send_heartbeats(); });
}

ProcessWorld::~ProcessWorld() {
  if (!heartbeat_thread_.joinable()) return;
  is_leaving_ = true;
  {
    const std::scoped_lock lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
  heartbeat_thread_.join();
  if (is_aborted()) write_flight();
  try {
    publish(true);
    membership_->leave();
    // Other ranks may still read the store; they leave soon, or the launcher ends them.
    if (server_ != nullptr && !is_aborted()) {
      const auto begin = Clock::now();
      while (seconds_since(begin) < 10) {
        const std::vector<RankReport> reports = read_reports(*store_, info_.world);
        const bool all_left =
            std::all_of(reports.begin(), reports.end(), [](const RankReport& report) {
              return !report.ended.empty() || (report.position && report.position->has_left);
            });
        if (all_left) break;
        pause();
      }
    }
  } catch (const std::exception& ignored) {  // the store is gone, and the other ranks notice that
  }
}

void ProcessWorld::publish(bool has_left) {
  RankPosition position = position_of(*recorder_);
  position.has_left = has_left;
  position.motion = look_at_motion();
  membership_->announce(to_text(position));
}

std::optional<Motion> ProcessWorld::look_at_motion() {
  const std::optional<MotionWatch::Look> look = look_at(activity_, *recorder_);
  if (!look) return std::nullopt;
  const std::scoped_lock lock(motion_mutex_);
  return motion_.look(*look, seconds_of(Clock::now()));
}

bool ProcessWorld::await_heartbeat() {
  constexpr double look_seconds = 0.05;
  const auto begin = Clock::now();
  while (true) {
    {
      std::unique_lock lock(mutex_);
      const std::chrono::duration<double> pause(std::min(look_seconds, options_.heartbeat_s));
      changed_.wait_for(lock, pause, [this] { return is_stopping_; });
      if (is_stopping_) return false;
    }
    const std::optional<Motion> motion = look_at_motion();
    const bool hangs = motion && motion->limit_s > 0 && motion->still_s > motion->limit_s;
    const bool is_new = hangs && !has_shown_hang_;
    has_shown_hang_ = hangs;
    if (is_new || seconds_since(begin) >= options_.heartbeat_s) return true;
  }
}

void ProcessWorld::send_heartbeats() {
  while (true) {
    std::optional<Verdict> found;
    try {
      publish(false);
      found = stored_verdict(*heartbeat_store_);
      if (!found && !info_.is_watched) {
        const double now = seconds_of(Clock::now());
        const std::optional<double> lost_at = membership_->changed(now);
        if (lost_at && now - *lost_at > options_.gone_s) {
          found = agree_on_verdict(Failure::connection, "", options_.deadline_s);
        }
      }
    } catch (const base::Fenced& error) {
      found =
          own_verdict(VerdictKind::fenced, error.what(), fmt::format("fenced: {}", error.what()));
    } catch (const base::Error& error) {
      // Its launcher is gone, which a request to stop has shown this rank: it saves, and ends.
      if (info_.is_elastic && is_stop_requested()) return;
      found = store_is_gone(error);
    }
    if (found) {
      abort_here(*found);
      if (info_.is_elastic) await_leaving();
      write_flight();
      return;
    }
    if (!await_heartbeat()) return;
  }
}

// A process that goes on takes the flight record with it; one that hangs does not.
void ProcessWorld::await_leaving() {
  constexpr auto leaving = std::chrono::seconds(2);
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, leaving, [this] { return is_stopping_; });
}

std::optional<Verdict> ProcessWorld::verdict() const {
  const std::scoped_lock lock(mutex_);
  return verdict_;
}

bool ProcessWorld::is_aborted() const {
  const std::scoped_lock lock(mutex_);
  return verdict_.has_value();
}

void ProcessWorld::throw_if_aborted() const {
  if (auto why = verdict()) throw Aborted(std::move(*why));
}

Verdict ProcessWorld::own_verdict(VerdictKind kind, const std::string& cause,
                                  const std::string& text) const {
  return {.kind = kind,
          .ranks = {info_.rank},
          .node = own_host(),
          .cause = cause,
          .text = text.empty() ? fmt::format("rank {} failed: {}", info_.rank, cause) : text};
}

// All reports are gone with the store.
Verdict ProcessWorld::store_is_gone(const base::Error& error) const {
  Verdict verdict{.kind = VerdictKind::died, .cause = error.what(), .text = error.what()};
  if (server_ == nullptr && !info_.is_watched) {
    verdict.ranks = {0};
    verdict.text += "; rank 0 runs it";
  }
  return verdict;
}

void ProcessWorld::abort_here(const Verdict& verdict) noexcept {
  abort_flags_.raise();  // first: a thread that finds the run aborted may end calls
  {
    const std::scoped_lock lock(mutex_);
    if (verdict_) return;
    verdict_ = verdict;
    verdict_->text = verdict_text(verdict.text);
  }
  const std::scoped_lock lock(wake_mutex_);
  for (const auto& [id, wake] : wakes_) wake();
}

void ProcessWorld::abort(const Verdict& verdict) noexcept {
  abort_flags_.raise();  // before other ranks learn of it
  Verdict stands = verdict;
  try {
    if (verdict_store_ != nullptr) stands = settle_verdict(*verdict_store_, verdict);
  } catch (const std::exception& ignored) {  // other ranks notice that the store is gone
  }
  abort_here(stands);
}

void ProcessWorld::await_abort_flags() noexcept {
  const std::scoped_lock lock(flags_mutex_);
  const std::optional<Verdict> why = verdict();
  if (verdict_store_ == nullptr || !why || std::exchange(has_awaited_flags_, true)) return;
  try {
    const std::unique_ptr<Store> store = verdict_store_->another();
    const bool has_died = why->kind == VerdictKind::died;
    const int64_t alive = info_.world - (has_died ? std::ssize(why->ranks) : 0);
    if (store->add(flags_set_key, 1) >= alive) store->set(all_flags_key, "1");
    if (store->try_get(late_flags_key)) abort_flags_.raise(AbortFlags::raised_late);
    // A rank that has left ends no call and needs no flag, but is waited for: runs that end
    // together rarely abort.
    const std::string all = all_flags_key;
    if (!store->wait({&all, 1}, flag_beats * options_.heartbeat_s)) store->set(late_flags_key, "1");
  } catch (const std::exception& ignored) {  // the store is gone: no rank can wait for this one
    abort_flags_.raise(AbortFlags::raised_late);
  }
}

void ProcessWorld::count_ended_by_budget() noexcept {
  try {
    if (verdict_store_ != nullptr) (void)verdict_store_->another()->add(ended_by_budget_key, 1);
  } catch (const std::exception& error) {
    base::log_warning("rank {}: the end of this process is not counted: {}", info_.rank,
                      error.what());
  }
}

void ProcessWorld::keep_flight(bool keeps) {
  const std::scoped_lock lock(mutex_);
  keeps_flight_ = keeps;
}

// Whether the record is to be written, by the caller alone.
bool ProcessWorld::takes_flight() {
  const std::scoped_lock lock(mutex_);
  if (has_written_flight_ || info_.flight_folder.empty() || !keeps_flight_) return false;
  if (verdict_ && verdict_->kind == VerdictKind::fenced) return false;
  return has_written_flight_ = true;
}

std::function<void()> ProcessWorld::take_flight() {
  if (!is_aborted() || !takes_flight()) return nullptr;
  return [recorder = recorder_, folder = std::filesystem::path(info_.flight_folder)] {
    write_record(*recorder, folder);
  };
}

void ProcessWorld::write_flight() noexcept {
  if (takes_flight()) write_record(*recorder_, info_.flight_folder);
}

void ProcessWorld::throw_if_ended() {
  // First: a stop that all ranks receive is not the failure of the first that ends.
  if (is_stop_requested()) {
    const std::string cause = "was requested to stop while it waited for other ranks";
    abort(own_verdict(VerdictKind::stopped, cause, fmt::format("rank {} {}", info_.rank, cause)));
    throw base::Stopped("stopped while waiting for other ranks");
  }
  throw_if_aborted();
}

void ProcessWorld::wait_for(std::span<const std::string> keys, double deadline_s,
                            bool ends_on_stop) {
  const auto begin = Clock::now();
  constexpr double report_seconds = 10;
  double next_report = report_seconds;
  while (true) {
    if (ends_on_stop) throw_if_ended();
    throw_if_aborted();
    const double waited = seconds_since(begin);
    if (waited >= deadline_s) fail(Failure::deadline, "waiting for the store", deadline_s);
    if (store_->wait(keys, std::min(deadline_s - waited, 0.1))) return;
    // The missing rank may have ended.
    if (has_lost_a_rank()) {
      fail(Failure::connection, "waiting for the store", deadline_s);
    }
    if (waited >= next_report) {
      next_report += report_seconds;
      log_waiting(waited, deadline_s);
    }
  }
}

void ProcessWorld::log_waiting(double waited_s, double deadline_s) {
  if (info_.rank != 0) return;  // one line is enough
  std::vector<int> missing;
  const std::vector<RankReport> reports = read_reports(*store_, info_.world);
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    if (!reports[rank].position) missing.push_back(static_cast<int>(rank));
  }
  constexpr size_t max_shown = 8;
  const size_t shown = std::min(missing.size(), max_shown);
  const std::string who =
      missing.empty()
          ? "other ranks to connect"
          : fmt::format(
                "rank{} {}{} of {} at {}", missing.size() == 1 ? "" : "s",
                fmt::join(missing.begin(), missing.begin() + static_cast<ptrdiff_t>(shown), ", "),
                shown < missing.size() ? ", ..." : "", info_.world, info_.store);
  base::log_info("waiting for {} ({:.0f} s of {:.0f} s)", who, waited_s, deadline_s);
}

void ProcessWorld::fail(Failure failure, const std::string& detail, double deadline_s) {
  if (!is_aborted()) {
    try {
      abort_here(agree_on_verdict(failure, detail, deadline_s));
    } catch (const base::Error& error) {
      abort_here(store_is_gone(error));
    }
  }
  throw Aborted(*verdict());
}

Verdict ProcessWorld::agree_on_verdict(Failure failure, const std::string& detail,
                                       double deadline_s) {
  Store& store = *verdict_store_;
  publish(false);
  // One rank reads the reports of all others, the first that found the failure: if every rank did,
  // the number of reads would be the square of the number of ranks. The next takes over if it does
  // not reach a verdict. A rank whose deadline passed closes its connections, which others may
  // report first: they know less, so it does not wait for them.
  constexpr double judge_seconds = 5;
  const bool is_late = failure == Failure::deadline;
  const double turn =
      static_cast<double>(store.add(is_late ? deadline_judges_key : judges_key, 1) - 1);
  const double wait_s = std::min(turn * judge_seconds, max_agreement_seconds);
  if (wait_s > 0 && store.wait({&verdict_key, 1}, wait_s)) return stored_verdict(store).value();
  VerdictOptions options{.silent_limit_s = silent_limit(deadline_s), .reporter = info_.rank};
  if (is_late) options.deadline_s = deadline_s;
  // A connection breaks at once when a peer dies, and also when a peer closes it after a failure,
  // so wait for a rank with more information to set the verdict. The launcher knows how a process
  // ended.
  const double max_wait_s = is_late ? 0 : info_.is_watched ? 3 : 2.5;
  const auto begin = Clock::now();
  while (true) {
    const auto looked = Clock::now();
    const std::vector<RankReport> reports = read_reports(store, info_.world);
    const bool is_clear =
        std::any_of(reports.begin(), reports.end(), [&](const RankReport& report) {
          return !report.ended.empty() || (report.position && !report.position->has_left &&
                                           report.silent_s > options.silent_limit_s);
        });
    if (const auto stands = stored_verdict(store)) return *stands;
    if (seconds_since(begin) >= max_wait_s || (is_clear && !info_.is_watched)) {
      Verdict verdict = verdict_of(reports, options);
      if (verdict.ranks.empty() && !detail.empty()) verdict.text += " (" + detail + ")";
      return settle_verdict(store, verdict);
    }
    // Reading the reports of many ranks takes time: leave the store four times as much for others.
    const double pause_s = std::max(0.02, 4 * seconds_since(looked));
    if (store.wait({&verdict_key, 1}, pause_s)) return stored_verdict(store).value();
  }
}

std::string ProcessWorld::wait_cycle() {
  return cycle_of(read_reports(*store_, info_.world), info_.rank);
}

ProcessWorld::Wake::Wake(ProcessWorld& world, std::function<void()> wake) : world_(world) {
  bool is_late = false;
  {
    const std::scoped_lock lock(world_.wake_mutex_);
    id_ = world_.next_wake_++;
    is_late = world_.is_aborted();
    if (!is_late) world_.wakes_[id_] = wake;
  }
  if (is_late) wake();
}

ProcessWorld::Wake::~Wake() {
  const std::scoped_lock lock(world_.wake_mutex_);
  world_.wakes_.erase(id_);
}

}  // namespace trireme::comm
