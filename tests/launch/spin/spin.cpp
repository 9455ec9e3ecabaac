// SPDX-License-Identifier: Apache-2.0
#include "tests/launch/spin/spin.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "base/system/rank_activity.h"
#include "comm/store/store_wire.h"
#include "tests/launch/spin/spin_gate.h"

namespace trireme::tests {
namespace {

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Puts the gate before one call of every step, from the second step on: by then it is known how
// many there are.
class GatePlanter final : public device::CallObserver {
 public:
  GatePlanter(int64_t point, SpinGate* gate) : point_(point), gate_(gate) {}
  void begins(device::Stream& stream, const device::StreamCall&) override {
    if (calls_++ != planted_at_ || (is_in_graph_ && !stream.is_capturing())) return;
    pass_gate(stream, gate_);
    is_in_graph_ = stream.is_capturing();
  }
  void ends(device::Stream&, const device::StreamCall&) override {}

  void step_ends() {
    if (points_ == 0) {
      if (calls_ == 0) throw std::runtime_error("a step has no call at which it could spin");
      points_ = calls_;
      planted_at_ = point_ % points_;
    }
    calls_ = 0;
  }
  int64_t points() const { return points_; }
  int64_t planted_at() const { return planted_at_; }

 private:
  const int64_t point_;
  SpinGate* const gate_;
  int64_t calls_ = 0;  // of the step that is queued
  std::atomic<int64_t> points_ = 0, planted_at_ = -1;
  bool is_in_graph_ = false;
};

// Makes the gate spin, and reports it.
class GateKeeper {
 public:
  GateKeeper(const SpinOptions& options, SpinGate& gate, const GatePlanter& planter)
      : options_(options), gate_(gate), planter_(planter), thread_([this] { watch(); }) {}
  ~GateKeeper() {
    set_gate_number(gate_.is_open, 1);
    is_over_ = true;
    thread_.join();
  }
  GateKeeper(const GateKeeper&) = delete;
  GateKeeper& operator=(const GateKeeper&) = delete;

 private:
  void watch() {
    constexpr int64_t min_steps = 40;
    constexpr double min_seconds = 3;
    double began = 0, passed = 0;
    int64_t passes = 0;
    while (!is_over_ && gate_number(gate_.spins) == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      const double now = wall_seconds();
      const int64_t passes_now = gate_number(gate_.passes);
      if (passes_now == passes) continue;
      if (passes == 0) began = now;
      if (passes > 0) {
        const auto steps = static_cast<size_t>(passes_now - passes);
        seconds_.insert(seconds_.end(), steps, (now - passed) / static_cast<double>(steps));
      }
      passed = now;
      passes = passes_now;
      const bool is_due =
          passes >= std::max(options_.step, min_steps) && now - began >= min_seconds;
      if (is_due && gate_number(gate_.due) == 0) set_gate_number(gate_.due, passes + 1);
    }
    if (gate_number(gate_.spins) > 0) report(wall_seconds());
  }

  void report(double since) {
    std::ranges::sort(seconds_);
    const auto share = [this](double of) {
      return seconds_[static_cast<size_t>(of * static_cast<double>(seconds_.size() - 1))];
    };
    fmt::print(
        "rank {} spins since {:.3f} at point {} of {}; steps take {:.4f} s, 99 % of them at "
        "most {:.4f} s\n",
        options_.rank, since, planter_.planted_at(), planter_.points(), share(0.5), share(0.99));
    std::fflush(stdout);
  }

  const SpinOptions options_;
  SpinGate& gate_;
  const GatePlanter& planter_;
  std::vector<double> seconds_;  // of steps
  std::atomic<bool> is_over_ = false;
  std::thread thread_;  // last: uses what stands above
};

// The streams have the observer, and no work any more afterwards.
class Observed {
 public:
  Observed(std::vector<device::Stream*> streams, device::CallObserver& observer)
      : streams_(std::move(streams)), observer_(observer) {
    for (device::Stream* stream : streams_) stream->add_call_observer(observer_);
  }
  ~Observed() {
    for (device::Stream* stream : streams_) {
      stream->remove_call_observer(observer_);
      stream->drain();
    }
  }
  Observed(const Observed&) = delete;
  Observed& operator=(const Observed&) = delete;

 private:
  std::vector<device::Stream*> streams_;
  device::CallObserver& observer_;
};

}  // namespace

SpinOptions SpinOptions::from(const std::string& text) {
  const size_t at = text.find('@'), colon = text.find(':');
  const std::string_view all = text;
  std::optional<int64_t> rank, step, point;
  if (at != std::string::npos && colon != std::string::npos && at < colon) {
    rank = comm::integer_from(all.substr(0, at));
    step = comm::integer_from(all.substr(at + 1, colon - at - 1));
    point = comm::integer_from(all.substr(colon + 1));
  }
  if (!rank || !step || !point) throw std::runtime_error("--spin needs RANK@STEP:POINT");
  return {.rank = static_cast<int>(*rank), .step = *step, .point = *point};
}

void train_until_spin(const SpinOptions& options, RankRig& rig) {
  const device::HostBuffer memory =
      rig.device.make_host_buffer(device::Mem::comm, sizeof(SpinGate), "gate");
  auto& gate = *reinterpret_cast<SpinGate*>(memory.data());
  GatePlanter planter(options.point, &gate);
  std::optional<Observed> observed;
  std::optional<GateKeeper> keeper;  // opens the gate before `observed` waits for the streams
  if (rig.mesh.world().rank() == options.rank) {
    std::vector<device::Stream*> streams = rig.engine.streams();
    streams.pop_back();  // that of the next step's input, which is in no graph
    observed.emplace(std::move(streams), planter);
    keeper.emplace(options, gate, planter);
  }
  for (int64_t step = 1;; ++step) {
    {
      base::RankActivity::current().set_step(step);
      const base::ActivityPhaseScope phase(step == 1 ? base::warm_up_phase : base::step_phase);
      rig.engine.step(rig.source, 1e-3);
    }
    rig.next_step();
    (void)rig.engine.take_signals();
    if (keeper) planter.step_ends();
  }
}

}  // namespace trireme::tests
