// SPDX-License-Identifier: Apache-2.0
#include "train/checkpointing/memory/memory_copies.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/system/start_thread.h"
#include "obs/clock.h"
#include "obs/terminal/number_text.h"

namespace trireme::train {
namespace {

constexpr int64_t sum_stride = 64;  // bytes

// What ranks exchange before a copy.
struct Exchanged {
  ckpt::CopySteps steps;
  bool is_ready = false;  // to download into the buffers
  bool has_failed = false;
  CopyCost cost;                         // of the last copy; exposed_seconds 0: there was none
  std::array<char, 160> send_problem{};  // why the last send failed; empty: it did not
};

}  // namespace

MemoryCopies::MemoryCopies(const Parts& parts)
    : engine_(parts.engine),
      rank_(parts.rank),
      memory_(parts.memory),
      pace_(parts.pace),
      figures_(parts.figures),
      peers_(parts.peers),
      counted_(peers_ ? peers_->sender().state() : CopySender::State{}),
      layout_(copy_layout(parts.model, parts.engine.plan(), parts.rank.number())),
      registration_(parts.device),
      sums_(parts.device.make_host_buffer(device::Mem::checkpoint,
                                          parts.memory.shape().buffers * sum_stride,
                                          "sums of copies of the state")),
      snapshot_(parts.engine, parts.device, "copies", copies_into(layout_, parts.engine), true),
      buffers_(static_cast<size_t>(parts.memory.shape().buffers)),
      readiness_(parts.device.registers_host_memory() ? Readiness::none : Readiness::ready) {
  TRIREME_CHECK(memory_.shape().layout == layout_.digest, "the memory of copies of rank {}",
                rank_.number());
  for (const ckpt::FoundCopy& copy : memory_.copies()) {
    buffers_[static_cast<size_t>(copy.buffer)] = {State::sealed, copy.label.step};
  }
  thread_ = base::start_thread("that seals copies of the state", [this] { work(); });
}

MemoryCopies::~MemoryCopies() {
  {
    const std::scoped_lock lock(mutex_);
    is_ended_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void MemoryCopies::begin(const std::string& run, int64_t epoch, int64_t step) {
  run_ = run;
  epoch_ = epoch;
  next_step_ = step + 1;
  for (const ckpt::FoundCopy& copy : memory_.copies()) {
    if (copy.label.step <= step && copy.label.run.data() == run) continue;
    memory_.clear(copy.buffer);
    const std::scoped_lock lock(mutex_);
    buffers_[static_cast<size_t>(copy.buffer)] = {};
  }
  if (peers_ != nullptr) peers_->begin(run, step);
  rank_.barrier();
}

void MemoryCopies::copy(const Point& point) {
  const double called = obs::steady_seconds();
  ckpt::CopySteps own_steps = steps();
  const CopySender::State sends = sender_state();
  own_steps.kept = sends.kept;
  own_steps.sending = sends.sending;
  const Readiness readiness = request_buffers();
  Exchanged own{.steps = own_steps,
                .is_ready = readiness == Readiness::ready,
                .has_failed = readiness == Readiness::failed,
                .cost = {.exposed_seconds = exposed_seconds(), .step_seconds = point.step_seconds},
                .send_problem = {}};
  sends.problem.copy(own.send_problem.data(), own.send_problem.size() - 1);
  const std::vector<Exchanged> all = rank_.gather(own);
  std::vector<ckpt::CopySteps> all_steps;
  CopyCost cost;
  bool is_ready = true;
  std::vector<std::string> send_problems;
  for (const Exchanged& of_rank : all) {
    send_problems.emplace_back(of_rank.send_problem.data());
    is_ready = is_ready && of_rank.is_ready;
    is_off_ = is_off_ || of_rank.has_failed;
    all_steps.push_back(of_rank.steps);
    cost.exposed_seconds = std::max(cost.exposed_seconds, of_rank.cost.exposed_seconds);
    cost.step_seconds = std::max(cost.step_seconds, of_rank.cost.step_seconds);
  }
  if (cost.exposed_seconds > 0 && cost.step_seconds > 0) pace_.add(cost);
  figures_.interval = pace_.interval();
  next_step_ = point.at.step + pace_.interval();
  const ckpt::CopyRound round = ckpt::round_of(all_steps);
  mark_held(round.held);
  if (peers_ != nullptr) std::ranges::move(peers_->news(send_problems), std::back_inserter(news_));
  if (peers_ != nullptr && round.kept) peers_->settle();
  if (!is_ready) {
    next_step_ = point.at.step + pace_.retry();
    return;
  }
  if (!ckpt::may_copy(all_steps, memory_.shape().buffers)) {
    ++figures_.skipped;
    next_step_ = point.at.step + pace_.retry();  // a buffer may be free by then
    return;
  }
  // Only after an abort, which ends the epoch.
  if (!point.is_complete) return;
  begin_copy(point, ckpt::free_buffer(own_steps, memory_.shape().buffers, round).value(),
             round.kept);
  blocked_seconds_ = obs::steady_seconds() - called;
}

double MemoryCopies::exposed_seconds() {
  const double blocked = std::exchange(blocked_seconds_, 0);
  const std::scoped_lock lock(mutex_);
  const double copied = std::exchange(copy_seconds_, 0);
  double beyond = 0;
  if (copied > 0) {
    figures_.device_seconds += copied;
    ++figures_.timed;
    beyond = snapshot_.exposed_seconds(last_);
    // On a CPU it takes the time of cores that compute.
    if (!snapshot_.device().registers_host_memory()) beyond = std::max(beyond, copied);
  }
  figures_.exposed_seconds += blocked + beyond;
  return blocked + beyond;
}

CopySender::State MemoryCopies::sender_state() {
  if (peers_ == nullptr) return {};
  const CopySender::State state = peers_->sender().state();
  figures_.sent += state.sent - counted_.sent;
  figures_.sent_bytes += state.bytes - counted_.bytes;
  figures_.send_failed += state.failed - counted_.failed;
  return counted_ = state;
}

void MemoryCopies::begin_copy(const Point& point, int buffer, std::optional<int64_t> keep) {
  ckpt::CopyLabel label{.epoch = epoch_, .step = point.at.step};
  TRIREME_CHECK(run_.size() < label.run.size(), "run '{}'", run_);
  std::ranges::copy(run_, label.run.begin());
  write_note(label, point.at, point.bf16_blocks, point.step_state);
  auto sink = std::make_unique<ckpt::CopySink>(memory_, buffer, label);
  sink->begin();
  write_rest(layout_, engine_, sink->block());
  last_ = snapshot_.begin(sink->block().data(), point.other, sum_of(buffer));
  if (peers_ != nullptr) {
    peers_->sender().expect(point.at.step, keep.value_or(ckpt::CopySteps::empty));
  }
  const std::scoped_lock lock(mutex_);
  buffers_[static_cast<size_t>(buffer)] = {State::filling, point.at.step};
  jobs_.push_back({std::move(sink), last_});
  ++figures_.copies;
  changed_.notify_all();
}

ckpt::CopySteps MemoryCopies::steps() {
  ckpt::CopySteps steps;
  const std::scoped_lock lock(mutex_);
  for (size_t i = 0; i < buffers_.size(); ++i) {
    if (buffers_[i].state == State::sealed) steps.sealed[i] = buffers_[i].step;
    if (buffers_[i].state == State::filling) steps.filling[i] = buffers_[i].step;
  }
  return steps;
}

void MemoryCopies::mark_held(std::optional<int64_t> step) {
  if (!step) return;
  if (peers_ != nullptr) peers_->mark_held(*step);
  const std::scoped_lock lock(mutex_);
  for (size_t i = 0; i < buffers_.size(); ++i) {
    if (buffers_[i].state == State::sealed && buffers_[i].step == *step) {
      memory_.mark_held(static_cast<int>(i));
    }
  }
}

void MemoryCopies::finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return jobs_.empty() && !is_working_; });
}

std::string MemoryCopies::problem() {
  const std::scoped_lock lock(mutex_);
  figures_.failed = failed_;
  return std::exchange(problem_, {});
}

MemoryCopies::Readiness MemoryCopies::request_buffers() {
  const std::scoped_lock lock(mutex_);
  if (readiness_ == Readiness::none) {
    readiness_ = Readiness::requested;
    changed_.notify_all();
  }
  return readiness_;
}

void MemoryCopies::prepare() {
  request_buffers();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return readiness_ != Readiness::requested; });
}

std::byte* MemoryCopies::sum_of(int buffer) const { return sums_.data() + buffer * sum_stride; }

void MemoryCopies::work() {
  while (true) {
    std::optional<Job> job;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] {
        return is_ended_ || !jobs_.empty() || readiness_ == Readiness::requested;
      });
      if (jobs_.empty() && is_ended_) return;
      if (!jobs_.empty()) {
        job = std::move(jobs_.front());
        jobs_.pop_front();
        is_working_ = true;
      }
    }
    job ? seal(*job) : register_buffers();
    const std::scoped_lock lock(mutex_);
    is_working_ = false;
    changed_.notify_all();
  }
}

void MemoryCopies::register_buffers() {
  std::string failure;
  try {
    snapshot_.device().use_on_this_thread();
    for (int buffer = 0; buffer < memory_.shape().buffers; ++buffer) {
      if (!registration_.add(memory_.room(buffer), is_ended_)) return;
    }
  } catch (const std::exception& error) {
    failure = error.what();
    registration_.clear();
  }
  const std::scoped_lock lock(mutex_);
  readiness_ = failure.empty() ? Readiness::ready : Readiness::failed;
  if (failure.empty()) return;
  problem_ =
      fmt::format("no copies of the state are made: {} of host memory cannot be page-locked: {}",
                  obs::bytes_text(memory_.shape().memory_bytes()), failure);
}

bool MemoryCopies::is_aborted() const {
  if (rank_.is_alone()) return false;
  comm::AbortFlags* const flags = rank_.mesh()->world().abort_flags();
  return flags != nullptr && flags->value() > 0;
}

void MemoryCopies::seal(Job& job) {
  const int64_t step = job.sink->label().step;
  Buffer after;
  double seconds = 0;
  std::string problem;
  try {
    snapshot_.device().use_on_this_thread();
    snapshot_.wait();
    seconds = snapshot_.seconds(job.span);
    if (!is_aborted()) {
      base::ContentSum sum = sum_of_rest(layout_, job.sink->block());
      sum.add(*reinterpret_cast<const base::ContentSum*>(sum_of(job.sink->buffer())));
      job.sink->set_hash(ckpt::content_hash(sum));
      job.sink->write(job.sink->block());
      job.sink->seal();
      after = {State::sealed, step};
    }
  } catch (const base::CommAborted&) {
    // The epoch ends, and the copy with it: the buffer stays empty.
  } catch (const std::exception& error) {
    problem = fmt::format("the copy of step {} was not sealed: {}", step, error.what());
  }
  const int buffer = job.sink->buffer();
  const std::scoped_lock lock(mutex_);
  buffers_[static_cast<size_t>(buffer)] = after;
  if (peers_ != nullptr) {
    peers_->sender().send(after.state == State::sealed ? std::optional(buffer) : std::nullopt);
  }
  copy_seconds_ = seconds;
  if (problem.empty()) return;
  ++failed_;
  problem_ = problem;
}

}  // namespace trireme::train
