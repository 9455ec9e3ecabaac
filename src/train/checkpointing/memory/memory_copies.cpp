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

namespace trireme::train {
namespace {

// What ranks exchange before a copy.
struct Exchanged {
  ckpt::CopySteps steps;
  bool is_busy = false;                  // the memory for staging is in use
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
      staging_(parts.is_staged ? std::optional(parts.device.make_host_buffer(
                                     device::Mem::checkpoint, layout_.bytes, "copies of the state"))
                               : std::nullopt),
      snapshot_(parts.engine, parts.device, "copies", copies_into(layout_, parts.engine)),
      buffers_(static_cast<size_t>(parts.memory.shape().buffers)) {
  TRIREME_CHECK(memory_.shape().layout == layout_.digest, "the memory of copies of rank {}",
                rank_.number());
  for (const ckpt::FoundCopy& copy : memory_.copies()) {
    buffers_[static_cast<size_t>(copy.buffer)] = {State::sealed, copy.label.step};
  }
  thread_ = base::start_thread("that seals copies of the state", [this] { seal_jobs(); });
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
  Exchanged own{.steps = own_steps,
                .is_busy = staging_ && own_steps.filling != ckpt::CopySteps{}.filling,
                .cost = {.exposed_seconds = exposed_seconds(point.step_seconds),
                         .step_seconds = point.step_seconds},
                .send_problem = {}};
  sends.problem.copy(own.send_problem.data(), own.send_problem.size() - 1);
  const std::vector<Exchanged> all = rank_.gather(own);
  std::vector<ckpt::CopySteps> all_steps;
  CopyCost cost;
  bool is_busy = false;
  std::vector<std::string> send_problems;
  for (const Exchanged& of_rank : all) {
    send_problems.emplace_back(of_rank.send_problem.data());
    is_busy = is_busy || of_rank.is_busy;
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
  if (is_busy || !ckpt::may_copy(all_steps, memory_.shape().buffers)) {
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

double MemoryCopies::exposed_seconds(double step_seconds) {
  const double blocked = std::exchange(blocked_seconds_, 0);
  const std::scoped_lock lock(mutex_);
  const double beyond = std::max(0.0, std::exchange(copy_seconds_, 0) - step_seconds / 2);
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
  const std::span<std::byte> content =
      staging_ ? std::span(staging_->data(), sink->block().size()) : sink->block();
  write_table(layout_, engine_, content);
  const Snapshot::Span span = snapshot_.begin(content.data(), point.other);
  if (peers_ != nullptr) {
    peers_->sender().expect(point.at.step, keep.value_or(ckpt::CopySteps::empty));
  }
  const std::scoped_lock lock(mutex_);
  buffers_[static_cast<size_t>(buffer)] = {State::filling, point.at.step};
  jobs_.push_back({std::move(sink), content, span});
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

void MemoryCopies::seal_jobs() {
  while (true) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return is_ended_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
      is_working_ = true;
    }
    seal(job);
    const std::scoped_lock lock(mutex_);
    is_working_ = false;
    changed_.notify_all();
  }
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
      job.sink->write(job.content);
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
