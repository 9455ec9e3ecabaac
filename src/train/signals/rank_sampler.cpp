// SPDX-License-Identifier: Apache-2.0
#include "train/signals/rank_sampler.h"

#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <limits>
#include <utility>

#include "obs/clock.h"
#include "train/report/throughput.h"

namespace trireme::train {
namespace {

using engine::Wait;
using obs::RankColumn;

// Adds up two spans of steps.
void add(engine::StepTimes& sum, const engine::StepTimes& times) {
  sum.steps += times.steps;
  sum.measured_steps += times.measured_steps;
  sum.seconds += times.seconds;
  sum.max_seconds = std::max(sum.max_seconds, times.max_seconds);
  sum.compute += times.compute;
  sum.gap += times.gap;
  for (size_t i = 0; i < sum.wait.size(); ++i) sum.wait[i] += times.wait[i];
}

// The formula is linear in the sequence length, and counts as many pairs per token.
double flops_per_pair(const spec::ModelSpec& model) {
  return formula_flops_per_token(model, 2) - formula_flops_per_token(model, 1);
}

// The memory that one rank can use.
int64_t memory_limit(const Platform& platform, int sharers) {
  if (platform.memory_bytes > 0) return platform.memory_bytes;
  if (platform.host_available_bytes == std::numeric_limits<int64_t>::max()) return 0;
  return platform.host_available_bytes / std::max(1, sharers);
}

}  // namespace

int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t all = 0, resident = 0;
  if (!(file >> all >> resident)) return 0;
  return resident * sysconf(_SC_PAGESIZE);
}

RankSampler::RankSampler(const Parts& parts)
    : parts_(parts),
      token_flops_(formula_flops_per_token(parts.model, 1) - flops_per_pair(parts.model)),
      pair_flops_(flops_per_pair(parts.model)),
      usage_(usage_now()) {}

void RankSampler::before_step(engine::Engine& engine, int64_t step, bool measures_waits) {
  if (first_step_ < 0) {
    first_step_ = step;
    sampled_step_ = step - 1;
  }
  sampled_step_ = std::min(sampled_step_, step - 1);  // steps may be repeated
  const bool is_cheap = !parts_.platform.is_gpu();
  engine.watch_waits(measures_waits || is_cheap || step % parts_.steps == 0);
}

void RankSampler::after_step(const engine::Engine& engine) {
  const spec::Plan& plan = engine.plan();
  const auto tokens = static_cast<double>(plan.rank_tokens() * plan.schedule.microbatches);
  work_ += token_flops_ * tokens + pair_flops_ * static_cast<double>(engine.attention_pairs());
  ++queued_steps_;
}

RankSampler::Usage RankSampler::usage_now() {
  timespec cpu{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
  constexpr double seconds_per_nanosecond = 1e-9;
  return {obs::steady_seconds(), static_cast<double>(cpu.tv_sec) +
                                     seconds_per_nanosecond * static_cast<double>(cpu.tv_nsec)};
}

obs::RankSample RankSampler::sample(engine::Engine& engine, int64_t step, const HostWaits& waits) {
  add(times_, engine.take_times());
  if (times_.measured_steps == 0) return {};
  obs::RankSample sample;
  const engine::StepTimes times = std::exchange(times_, {});
  const auto steps = static_cast<double>(times.steps);
  const auto set = [&sample](RankColumn column, double value) {
    sample[column] = static_cast<float>(value);
  };
  const auto set_wait = [&](RankColumn column, Wait wait) {
    set(column, times.wait[static_cast<size_t>(wait)] / steps);
  };
  set(RankColumn::steps, steps);
  set(RankColumn::step_seconds, times.seconds / steps);
  set(RankColumn::max_step_seconds, times.max_seconds);
  set(RankColumn::compute_seconds, times.compute / steps);
  // The host waits while the device has no work, so these waits are parts of the gap.
  const auto queued = static_cast<double>(std::max<int64_t>(1, std::exchange(queued_steps_, 0)));
  double gap = times.gap / steps;
  const double data = std::min(gap, (waits.data - waits_.data) / queued);
  gap -= data;
  const double save = std::min(gap, (waits.save - waits_.save) / queued);
  gap -= save;
  set(RankColumn::gap_seconds, gap);
  set(RankColumn::data_seconds, data);
  set(RankColumn::save_seconds, save + times.wait[static_cast<size_t>(Wait::save)] / steps);
  set_wait(RankColumn::wait_tp, Wait::tp);
  set_wait(RankColumn::wait_cp, Wait::cp);
  set_wait(RankColumn::wait_ep, Wait::ep);
  set_wait(RankColumn::wait_data, Wait::data);
  set_wait(RankColumn::wait_pp, Wait::pp);
  set_wait(RankColumn::wait_closing, Wait::closing);
  set_wait(RankColumn::wait_input, Wait::input);
  set(RankColumn::work, std::exchange(work_, 0) / queued);
  set(RankColumn::memory_bytes, static_cast<double>(parts_.platform.device->ledger().live()));
  set(RankColumn::memory_limit_bytes,
      static_cast<double>(memory_limit(parts_.platform, parts_.start.device_sharers)));
  set(RankColumn::host_bytes, static_cast<double>(resident_bytes()));
  const Usage now = usage_now();
  const auto threads = static_cast<double>(std::max<int64_t>(1, parts_.start.system.threads) *
                                           parts_.start.process_ranks);
  set(RankColumn::cpu_share,
      (now.cpu_seconds - usage_.cpu_seconds) /
          std::max(1e-9, (now.wall_seconds - usage_.wall_seconds) * threads));
  const device::GpuCounters counters =
      parts_.hardware == nullptr ? device::GpuCounters{} : parts_.hardware->latest();
  set(RankColumn::clock_hz, counters.clock_hz);
  set(RankColumn::max_clock_hz, counters.max_clock_hz);
  set(RankColumn::power_watts, counters.power_watts);
  set(RankColumn::temperature_celsius, counters.temperature_celsius);
  set(RankColumn::ecc_errors, counters.ecc_errors);
  set(RankColumn::throttle_reasons, counters.throttle_reasons);
  set(RankColumn::sm_share, counters.sm_share);
  set(RankColumn::tensor_share, counters.tensor_share);
  set(RankColumn::nvlink_bytes_per_second, counters.nvlink_bytes_per_second);
  set(RankColumn::pcie_bytes_per_second, counters.pcie_bytes_per_second);
  usage_ = now;
  waits_ = waits;
  sampled_step_ = step;
  has_sampled_ = true;
  return sample;
}

}  // namespace trireme::train
