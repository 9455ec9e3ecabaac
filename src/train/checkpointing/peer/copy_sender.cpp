// SPDX-License-Identifier: Apache-2.0
#include "train/checkpointing/peer/copy_sender.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/system/start_thread.h"
#include "obs/clock.h"
#include "train/checkpointing/peer/copy_transfer.h"

namespace trireme::train {

CopySender::CopySender(Target target, const ckpt::CopyMemory& memory)
    : target_(std::move(target)), memory_(memory) {
  thread_ = base::start_thread("that sends copies of the state", [this] { run(); });
}

CopySender::~CopySender() {
  stop();
  thread_.join();
}

void CopySender::stop() {
  {
    const std::scoped_lock lock(mutex_);
    is_ended_ = true;
    changed_.notify_all();
  }
  stop_.set();
}

void CopySender::expect(int64_t step, int64_t keep) {
  const std::scoped_lock lock(mutex_);
  TRIREME_CHECK(state_.sending == ckpt::CopySteps::empty, "step {} while {} is being sent", step,
                state_.sending);
  if (is_ended_) return;
  state_.sending = step;
  keep_ = keep;
}

void CopySender::send(std::optional<int> buffer) {
  const std::scoped_lock lock(mutex_);
  if (state_.sending == ckpt::CopySteps::empty) return;
  if (!buffer || is_ended_) {
    state_.sending = ckpt::CopySteps::empty;
    return;
  }
  buffer_ = buffer;
  changed_.notify_all();
}

CopySender::State CopySender::state() const {
  const std::scoped_lock lock(mutex_);
  return state_;
}

void CopySender::run() {
  while (true) {
    int buffer = 0;
    int64_t keep = 0;
    ckpt::CopySteps::Steps kept;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return is_ended_ || buffer_; });
      if (is_ended_) return;
      buffer = *std::exchange(buffer_, std::nullopt);
      keep = keep_;
      kept = state_.kept;
    }
    const double begin = obs::steady_seconds();
    std::string problem = try_to_send(buffer, keep, kept);
    const std::scoped_lock lock(mutex_);
    state_.sending = ckpt::CopySteps::empty;
    state_.kept = kept;
    state_.seconds = obs::steady_seconds() - begin;
    if (problem.empty()) {
      ++state_.sent;
      state_.bytes += memory_.shape().bytes;
    } else if (!is_ended_) {
      ++state_.failed;
    }
    state_.problem = std::move(problem);
  }
}

std::string CopySender::try_to_send(int buffer, int64_t keep, ckpt::CopySteps::Steps& kept) {
  try {
    if (target_.address.empty()) throw comm::PeerLost("it does not accept connections");
    if (!connection_) connection_.emplace(target_.address, target_.group, target_.own, stop_);
    kept = send_copy(*connection_, memory_, buffer, keep);
    return "";
  } catch (const comm::PeerLost& error) {
    connection_.reset();
    // Another buffer may have been overwritten.
    for (int64_t& step : kept) {
      if (step != keep) step = ckpt::CopySteps::empty;
    }
    return error.what();
  }
}

}  // namespace trireme::train
