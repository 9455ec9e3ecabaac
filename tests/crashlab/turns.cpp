// SPDX-License-Identifier: Apache-2.0
#include "turns.h"

#include <algorithm>
#include <exception>
#include <thread>

#include "ckpt/disk/forward_disk_test.h"

namespace trireme::crashlab {

class TurnFile final : public ckpt::ForwardFile {
 public:
  TurnFile(Turns& turns, size_t task, std::unique_ptr<DiskFile> file)
      : ForwardFile(std::move(file)), turns_(turns), task_(task) {}
  void write_at(int64_t offset, std::span<const std::byte> bytes) override {
    turns_.wait(task_);
    ForwardFile::write_at(offset, bytes);
  }
  void sync() override {
    turns_.wait(task_);
    ForwardFile::sync();
  }

 private:
  Turns& turns_;
  size_t task_;
};

// Between begin_generation() and commit() a rank only creates, writes and syncs files.
class TurnDisk final : public ckpt::ForwardDisk {
 public:
  TurnDisk(ckpt::Disk& disk, Turns& turns, size_t task)
      : ForwardDisk(disk), turns_(turns), task_(task) {}
  std::unique_ptr<ckpt::DiskFile> create(const Path& path, int64_t bytes) override {
    turns_.wait(task_);
    return std::make_unique<TurnFile>(turns_, task_, disk_.create(path, bytes));
  }

 private:
  Turns& turns_;
  size_t task_;
};

void Turns::run(ckpt::Disk& disk, const std::vector<std::function<void(ckpt::Disk&)>>& tasks) {
  states_.assign(tasks.size(), State::busy);
  turn_ = tasks.size();
  std::exception_ptr first;
  {
    std::vector<std::jthread> threads;
    for (size_t task = 0; task < tasks.size(); ++task) {
      threads.emplace_back([&, task] {
        TurnDisk mine(disk, *this, task);
        std::exception_ptr thrown;
        try {
          tasks[task](mine);
        } catch (...) {
          thrown = std::current_exception();
        }
        const std::lock_guard lock(mutex_);
        if (first == nullptr) first = thrown;
        states_[task] = State::ended;
        hand_on();
      });
    }
  }
  if (first != nullptr) std::rethrow_exception(first);
}

void Turns::wait(size_t task) {
  std::unique_lock lock(mutex_);
  states_[task] = State::waiting;
  hand_on();
  changed_.wait(lock, [&] { return turn_ == task; });
  turn_ = states_.size();
  states_[task] = State::busy;
}

void Turns::hand_on() {
  if (std::ranges::find(states_, State::busy) != states_.end()) return;
  const auto waiting = static_cast<uint64_t>(std::ranges::count(states_, State::waiting));
  if (waiting == 0) return;
  uint64_t left = dice_.pick(waiting);
  for (size_t task = 0; task < states_.size(); ++task) {
    if (states_[task] == State::waiting && left-- == 0) turn_ = task;
  }
  changed_.notify_all();
}

}  // namespace trireme::crashlab
