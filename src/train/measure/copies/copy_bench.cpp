// SPDX-License-Identifier: Apache-2.0
#include "train/measure/copies/copy_bench.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "analysis/statistics.h"
#include "base/check.h"
#include "base/error.h"
#include "base/system/descriptor.h"
#include "base/text/json.h"
#include "device/host_memory.h"
#include "obs/clock.h"
#include "obs/terminal/number_text.h"
#include "train/checkpointing/memory/memory_copies.h"

namespace trireme::train {
namespace {

constexpr int window_pairs = 10;
constexpr int64_t min_window_steps = 10;
constexpr int copy_buffers = ckpt::min_copy_buffers;

base::Descriptor memory_for_copies(const ckpt::CopyShape& shape) {
  if (const int64_t available = device::host_memory_available(); available < shape.memory_bytes()) {
    throw base::OutOfMemory(fmt::format(
        "--copies: {} copies of the state need {} of host memory, {} are available", shape.buffers,
        obs::bytes_text(shape.memory_bytes()), obs::bytes_text(available)));
  }
  base::Descriptor memory(::memfd_create("trireme bench copies", MFD_CLOEXEC));
  if (memory.value() < 0) {
    throw base::IoError(fmt::format("--copies: memfd_create: {}", std::strerror(errno)));
  }
  return memory;
}

// One rank that steps, and makes copies in some windows.
class CopyTrial {
 public:
  explicit CopyTrial(const CopyBenchParts& parts)
      : parts_(parts),
        rank_(nullptr, parts.engine.plan().mesh, parts.device),
        shape_(shape_of(copy_layout(parts.model, parts.engine.plan(), 0), 0, copy_buffers)),
        descriptor_(memory_for_copies(shape_)),
        memory_(descriptor_.value(), shape_),
        pace_(parts.interval, 0),
        copies_({.engine = parts.engine,
                 .model = parts.model,
                 .rank = rank_,
                 .device = parts.device,
                 .memory = memory_,
                 .pace = pace_,
                 .figures = figures_}) {
    copies_.begin("bench", 1, 0);
  }

  void prepare() {
    copies_.prepare();
    check();
  }
  // Returns the seconds of a window. A copy is begun before its first step, and none after its
  // last: each one delays a step of the window.
  double window(int64_t steps, bool has_copies) {
    parts_.engine.compute().synchronize();
    const double begin = obs::steady_seconds();
    for (int64_t step = 0; step < steps; ++step) {
      if (has_copies && step % parts_.interval == 0) copy();
      parts_.engine.step(parts_.source, 3e-4);
      ++step_;
    }
    parts_.engine.compute().synchronize();
    const double seconds = obs::steady_seconds() - begin;
    copies_.finish();
    check();
    return seconds;
  }
  int64_t count_intact() const {
    return std::ranges::count_if(memory_.copies(), [this](const ckpt::FoundCopy& copy) {
      return memory_.verify(copy.buffer);
    });
  }
  const CopyFigures& figures() const { return figures_; }
  int64_t copies() const { return static_cast<int64_t>(memory_.copies().size()); }
  int64_t bytes() const { return shape_.bytes; }
  double host_seconds() const { return host_seconds_; }

 private:
  void copy() {
    const kernels::StepState state = parts_.engine.step_state();  // waits for the step
    const double begin = obs::steady_seconds();
    copies_.copy({.at = {.step = step_}, .bf16_blocks = {}, .step_state = state});
    host_seconds_ += obs::steady_seconds() - begin;
  }
  void check() {
    if (const std::string problem = copies_.problem(); !problem.empty()) {
      throw base::Error("--copies: " + problem);
    }
  }

  const CopyBenchParts& parts_;
  Rank rank_;
  const ckpt::CopyShape shape_;
  const base::Descriptor descriptor_;
  ckpt::CopyMemory memory_;
  CopyPace pace_;
  CopyFigures figures_;
  MemoryCopies copies_;
  int64_t step_ = 1;
  double host_seconds_ = 0;
};

}  // namespace

MedianInterval median_interval(std::vector<double> values) {
  TRIREME_CHECK(!values.empty(), "the median of no values");
  std::ranges::sort(values);
  const size_t n = values.size();
  // The median lies between the values k and n - 1 - k (from 0) unless at most k values are below
  // it, or above: each side has the probability sum_{i <= k} (n over i) / 2^n.
  double term = 1;
  for (size_t i = 0; i < n; ++i) term /= 2;
  double outside = term;
  size_t k = 0;
  while (k + 1 < n / 2) {
    term *= static_cast<double>(n - k) / static_cast<double>(k + 1);
    if (2 * (outside + term) > 0.05) break;
    outside += term;
    ++k;
  }
  return {.median = analysis::median(values), .low = values[k], .high = values[n - 1 - k]};
}

CopyBench bench_copies(const CopyBenchParts& parts) {
  TRIREME_CHECK(parts.interval >= 1, "copies every {} steps", parts.interval);
  const int64_t steps = (min_window_steps + parts.interval - 1) / parts.interval * parts.interval;
  parts.device.ledger().unfreeze();  // for the sum of a copy; the next step freezes it again
  CopyTrial trial(parts);
  CopyBench result{.interval = parts.interval, .window_steps = steps, .bytes = trial.bytes()};
  const double begin = obs::steady_seconds();
  trial.prepare();
  result.prepare_seconds = obs::steady_seconds() - begin;
  // The first copy maps its memory, and a captured step may be made anew.
  for (const bool has_copies : {true, false}) trial.window(steps, has_copies);
  std::vector<double> plain;
  for (int pair = 0; pair < window_pairs; ++pair) {
    double seconds[2];
    const bool first = pair % 2 != 0;
    for (const bool has_copies : {first, !first}) {
      seconds[has_copies ? 1 : 0] = trial.window(steps, has_copies);
    }
    plain.push_back(seconds[0] / static_cast<double>(steps));
    result.ratios.push_back(seconds[1] / seconds[0]);
  }
  const CopyFigures& figures = trial.figures();
  result.ratio = median_interval(result.ratios);
  result.step_seconds = analysis::median(plain);
  result.made = figures.copies;
  result.skipped = figures.skipped;
  result.device_seconds =
      figures.timed > 0 ? figures.device_seconds / static_cast<double>(figures.timed) : 0;
  const int64_t calls = figures.copies + figures.skipped;
  result.host_seconds = trial.host_seconds() / static_cast<double>(std::max<int64_t>(1, calls));
  result.verified = trial.count_intact();
  if (result.verified != trial.copies() || result.verified == 0) {
    throw base::Error(fmt::format("--copies: {} of {} copies that are left are intact",
                                  result.verified, trial.copies()));
  }
  return result;
}

base::Json to_json(const CopyBench& b) {
  return {{"interval", b.interval},
          {"window_steps", b.window_steps},
          {"windows", b.ratios.size()},
          {"ratio", b.ratio.median},
          {"ratio_low", b.ratio.low},
          {"ratio_high", b.ratio.high},
          {"ratios", b.ratios},
          {"step_seconds", b.step_seconds},
          {"bytes", b.bytes},
          {"device_seconds", b.device_seconds},
          {"bytes_per_second", b.bytes_per_second()},
          {"host_seconds", b.host_seconds},
          {"prepare_seconds", b.prepare_seconds},
          {"made", b.made},
          {"skipped", b.skipped},
          {"verified", b.verified}};
}

}  // namespace trireme::train
