// SPDX-License-Identifier: Apache-2.0
#include "tests/launch/lives.h"

#include <fmt/format.h>
#include <malloc.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/rng.h"
#include "base/sha256.h"
#include "comm/gloo.h"
#include "comm/nccl.h"
#include "device/accelerator.h"
#include "kernels/ops.h"
#include "tests/ranks/ranks_rig.h"

namespace trireme::tests {
namespace {

constexpr int life_steps = 4;
constexpr double life_deadline_s = 30;
constexpr double capture_seconds = 0.05;  // about what the host needs to capture a step
constexpr auto busy_time = std::chrono::milliseconds(2500);

int64_t entries_in(const char* folder) {
  return std::distance(std::filesystem::directory_iterator(folder),
                       std::filesystem::directory_iterator());
}

struct Usage {
  int64_t descriptors = 0, threads = 0, host = 0, device = 0;
};

// What every open descriptor of the process refers to.
std::map<std::string, std::string> open_files() {
  std::map<std::string, std::string> all;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code is_gone;
    const auto target = std::filesystem::read_symlink(entry.path(), is_gone);
    if (!is_gone) all[entry.path().filename()] = target.string();
  }
  return all;
}

// The line of the kernel's tables of sockets that names the socket "socket:[inode]".
std::string socket_line(const std::string& target) {
  if (!target.starts_with("socket:[")) return {};
  const std::string inode = " " + target.substr(8, target.size() - 9) + " ";
  for (const char* table : {"tcp", "tcp6", "unix", "netlink"}) {
    std::ifstream file(fmt::format("/proc/self/net/{}", table));
    for (std::string line; std::getline(file, line);) {
      if ((line + " ").find(inode) != std::string::npos) return fmt::format("{} {}", table, line);
    }
  }
  return "in no table";
}

Usage usage_of(const device::Device& device) {
  const struct mallinfo2 memory = ::mallinfo2();
  return {entries_in("/proc/self/fd"), entries_in("/proc/self/task"),
          static_cast<int64_t>(memory.uordblks + memory.hblkhd), driver_used_bytes(device)};
}

// Calls `fire` after a time, unless it is destroyed before.
class Timer {
 public:
  Timer(double seconds, std::function<void()> fire)
      : thread_([this, seconds, fire = std::move(fire)] {
          std::unique_lock lock(mutex_);
          const std::chrono::duration<double> span(seconds);
          if (!changed_.wait_for(lock, span, [this] { return is_over_; })) fire();
        }) {}
  ~Timer() {
    {
      const std::scoped_lock lock(mutex_);
      is_over_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

 private:
  std::mutex mutex_;  // guards is_over_, and is held while `fire` runs
  std::condition_variable changed_;
  bool is_over_ = false;
  std::thread thread_;
};

// Calls `fire` at one op.
class OpTrigger final : public kernels::OpObserver {
 public:
  OpTrigger(int64_t left, std::function<void()> fire) : left_(left), fire_(std::move(fire)) {}
  void op(const device::Stream&, const spec::OpCost&) override {
    ++count_;
    if (--left_ == 0) fire_();
  }
  int64_t count() const { return count_; }

 private:
  int64_t left_, count_ = 0;
  std::function<void()> fire_;
};

void watch_ops(engine::Engine& engine, kernels::OpObserver* observer) {
  for (device::Stream* stream : engine.streams()) stream->set_observer(observer);
}

std::string state_hash(engine::Engine& engine) {
  base::Sha256 sha;
  for (const engine::Engine::StateRange& range : engine.state()) {
    const std::vector<float> values = engine.read_state(range);
    sha.update(std::as_bytes(std::span(values)));
  }
  const kernels::StepState state = engine.step_state();
  sha.update(std::as_bytes(std::span(&state.applied, 1)));
  sha.update(std::as_bytes(std::span(&state.norm_mean, 1)));
  return sha.hex();
}

// What one layout does when nothing disturbs it.
struct QuietLife {
  std::vector<std::string> hashes;  // by step, the initial state first
  int64_t ops = 0;
  double seconds = 0;
};

// Data parallel with deferred updates, all stages of ZeRO, Muon, and one layout along cp; each has
// three groups or more, and waits between two or three streams.
std::vector<Layout> life_layouts(bool on_gpu) {
  std::vector<Layout> all = {
      {.dims = tiny_llama(), .dp = 2, .logical_dp = 2},
      {.dims = tiny_llama(), .zero = 2, .stage = 2, .recipe = "bf16", .logical_dp = 2},
      {.dims = tiny_llama(), .zero = 2, .stage = 3, .logical_dp = 2},
      {.dims = tiny_llama(), .cp = 2, .logical_dp = 1, .seq_len = 8},
      {.dims = tiny_llama(), .dp = 2, .logical_dp = 2, .optimizer = spec::OptimizerKind::muon}};
  for (Layout& layout : all) layout.on_gpu = on_gpu;
  return all;
}

class Lives {
 public:
  Lives(const LivesOptions& options, device::Device& device)
      : options_(options),
        device_(device),
        store_(comm::open_store(comm::parse_store_address(options.store), 60)),
        layouts_(life_layouts(options.is_nccl)) {}

  void run() {
    for (const Layout& layout : layouts_) quiet_.push_back(quiet_life(layout));
    Usage before;
    std::map<std::string, std::string> files_before;
    const auto warm_up = 2 * std::ssize(layouts_);
    for (int64_t life = 0; life < options_.lives; ++life) {
      one_life(life);
      meet();
      if (life + 1 == std::min(warm_up, options_.lives)) {
        before = usage_of(device_);
        files_before = open_files();
      }
      meet();
    }
    Usage now = usage_of(device_);
    // Threads that have ended a group may still be leaving.
    for (int i = 0;
         i < 40 && (now.threads > before.threads || now.descriptors > before.descriptors); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      now = usage_of(device_);
    }
    meet();
    fmt::print("rank {} lives {} aborted {} sealed {} wrong {} other {}\n", options_.rank,
               options_.lives, aborted_, sealed_, wrong_, other_);
    fmt::print("rank {} grew by {} descriptors {} threads {} bytes {} device bytes\n",
               options_.rank, now.descriptors - before.descriptors, now.threads - before.threads,
               now.host - before.host, now.device - before.device);
    for (const auto& [number, target] : open_files()) {
      const auto found = files_before.find(number);
      if (found != files_before.end() && found->second == target) continue;
      fmt::print("rank {} has opened {}: {} {}\n", options_.rank, number, target,
                 socket_line(target));
    }
  }

 private:
  // All ranks enter before one leaves: a rank that began the next epoch would fence the others.
  void meet() {
    std::vector<std::string> keys;
    for (int rank = 0; rank < options_.ranks; ++rank) {
      keys.push_back(fmt::format("lives/{}/{}", meetings_, rank));
    }
    ++meetings_;
    store_->set(keys[static_cast<size_t>(options_.rank)], "1");
    if (!store_->wait(keys, 120)) throw std::runtime_error("a rank has not ended its life");
  }

  // Calls `body` as a rank of a new epoch.
  void join(const Layout& layout,
            const std::function<void(RankRig&, comm::ProcessWorld&, comm::Communicator&)>& body) {
    comm::RankInfo info{.rank = options_.rank,
                        .world = options_.ranks,
                        .local_rank = options_.rank,
                        .local_world = options_.ranks};
    info.store = options_.store;
    info.epoch = ++epoch_;
    device_.ledger().unfreeze();
    comm::ProcessWorld world(info, {.deadline_s = 60, .heartbeat_s = 0.1, .gone_s = 3});
    const comm::Communicator::Options group_options = {.name = "world",
                                                       .deadline_s = life_deadline_s};
    const auto group = options_.is_nccl ? comm::make_nccl(world, device_, group_options)
                                        : comm::make_gloo(world, group_options);
    run_rank(layout, *group, device_, [&](RankRig& rig) { body(rig, world, *group); });
    group->close(comm::End::finish);
  }

  QuietLife quiet_life(const Layout& layout) {
    QuietLife quiet;
    OpTrigger counter(0, [] {});
    join(layout, [&](RankRig& rig, comm::ProcessWorld&, comm::Communicator& group) {
      quiet.hashes.push_back(state_hash(rig.engine));
      watch_ops(rig.engine, &counter);
      for (int step = 0; step < life_steps; ++step) {
        const auto begin = std::chrono::steady_clock::now();
        rig.engine.step(rig.source, 1e-3);
        rig.engine.compute().synchronize();
        const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
        if (step > 0) quiet.seconds += taken.count() * life_steps / (life_steps - 1);
        rig.next_step();
        quiet.hashes.push_back(state_hash(rig.engine));
      }
      watch_ops(rig.engine, nullptr);
      group.barrier();
    });
    quiet.ops = counter.count();
    meet();
    return quiet;
  }

  void one_life(int64_t life) {
    const auto draw = [&](uint64_t what, int64_t below) {
      const auto index = 8 * static_cast<uint64_t>(life) + what;
      return static_cast<int64_t>(
          base::rng_below(options_.seed, index, static_cast<uint64_t>(below)));
    };
    const size_t which = static_cast<size_t>(life) % layouts_.size();
    Layout layout = layouts_[which];
    layout.capture = draw(0, 2) == 0;  // on a CPU this changes nothing
    const QuietLife& quiet = quiet_[which];
    const bool is_aborted = draw(1, 10) < options_.aborted_of_ten;
    const bool is_culprit = is_aborted && draw(2, options_.ranks) == options_.rank;
    join(layout, [&](RankRig& rig, comm::ProcessWorld& world, comm::Communicator& group) {
      if (!is_aborted) {
        train(rig);
        group.barrier();
        if (state_hash(rig.engine) != quiet.hashes.back()) ++other_;
        group.barrier();
        return;
      }
      group.barrier();  // all have built their engines
      {
        // Captured steps queue no ops: those are aborted after a time, as half of the others are.
        // Half of the captured ones are aborted while, or soon after, the second step is captured.
        // In some the other rank is busy on the host at that moment, longer than an abort may take.
        const bool is_timed = layout.capture || draw(3, 2) == 0;
        const bool is_busy = layout.capture && draw(7, 8) == 0;
        const bool in_capture = layout.capture && !is_busy && draw(6, 2) == 0;
        const auto abort = [&world] { world.abort("planted"); };
        std::optional<Timer> timer;
        const auto start_timer = [&](double span) {
          if (is_culprit) timer.emplace(1e-3 * static_cast<double>(draw(4, 1000)) * span, abort);
        };
        if (is_timed && !in_capture && !is_busy) start_timer(quiet.seconds);
        OpTrigger trigger(1 + draw(5, quiet.ops), [&] {
          abort();
          throw std::runtime_error("planted");
        });
        if (is_culprit && !is_timed) watch_ops(rig.engine, &trigger);
        train_until_aborted(rig, world, is_culprit, [&](int step) {
          if (step == 1 && in_capture) start_timer(capture_seconds);
          if (step < 2 || !is_busy) return;
          if (is_culprit) {
            abort();
          } else {
            std::this_thread::sleep_for(busy_time);
          }
        });
        watch_ops(rig.engine, nullptr);
      }
      ++aborted_;
      const std::optional<int64_t> step = rig.engine.sealed_step();
      rig.mesh.close(comm::End::abort);
      group.close(comm::End::abort);
      if (!step) return;
      ++sealed_;
      if (state_hash(rig.engine) == quiet.hashes.at(static_cast<size_t>(*step))) return;
      ++wrong_;
      fmt::print("rank {} life {}, which {}: not the state of step {}: {}\n", options_.rank, life,
                 is_culprit ? "it ended" : "another rank ended", *step, to_string(layout));
    });
  }

  static void train(
      RankRig& rig, const std::function<void(int)>& before_step = [](int) {}) {
    for (int step = 0; step < life_steps; ++step) {
      before_step(step);
      rig.engine.step(rig.source, 1e-3);
      rig.next_step();
    }
    rig.engine.compute().synchronize();
  }

  static void train_until_aborted(RankRig& rig, comm::ProcessWorld& world, bool is_culprit,
                                  const std::function<void(int)>& before_step) {
    try {
      train(rig, before_step);
      if (is_culprit) world.abort("planted");
      while (!world.is_aborted()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    } catch (const base::CommAborted&) {
      // Expected: the ranks are aborted.
    } catch (const std::runtime_error& error) {
      if (std::string(error.what()) != "planted") throw;
    }
  }

  const LivesOptions options_;
  device::Device& device_;
  const std::unique_ptr<comm::Store> store_;
  const std::vector<Layout> layouts_;
  std::vector<QuietLife> quiet_;
  int64_t epoch_ = 0, meetings_ = 0;
  int64_t aborted_ = 0, sealed_ = 0, wrong_ = 0, other_ = 0;
};

}  // namespace

void live(const LivesOptions& options, device::Device& device) {
  Lives(options, device).run();
  std::fflush(stdout);
}

}  // namespace trireme::tests
