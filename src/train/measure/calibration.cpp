// SPDX-License-Identifier: Apache-2.0
#include "train/measure/calibration.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "device/accelerator.h"
#include "device/host_cores.h"
#include "plan/calibrate/machine_peaks.h"
#include "plan/calibrate/measurement_noise.h"
#include "plan/calibrate/similar_machine.h"
#include "plan/calibrate/step_factor.h"
#include "train/measure/operation_times.h"
#include "train/measure/reference_steps.h"
#include "train/measure/thread_all_reduces.h"
#include "train/report/peaks.h"

namespace trireme::train {
namespace {

using spec::Machine;

std::optional<plan::StatedPeak> stated(const std::optional<Peak>& peak) {
  if (!peak) return {};
  return plan::StatedPeak{peak->per_second, peak->source};
}

plan::StatedPeaks stated_peaks(const std::string& hardware) {
  return {.bf16_flops = stated(datasheet_flops(hardware, base::DType::bf16)),
          .fp32_flops = stated(datasheet_flops(hardware, base::DType::f32)),
          .bandwidth = stated(datasheet_bandwidth(hardware))};
}

void set_fp32_peak(const plan::StatedPeaks& peaks, Platform& platform, Machine& m) {
  spec::Processor& p = m.processor;
  if (!platform.is_gpu()) {
    p.fp32_flops = p.bf16_flops;
    m.sources["processor.bf16_tflops"] = "that of fp32, in which the CPU's kernels compute bf16";
  } else if (peaks.fp32_flops) {
    p.fp32_flops = peaks.fp32_flops->per_second;
    m.sources["processor.fp32_tflops"] = peaks.fp32_flops->source;
  } else {
    p.fp32_flops = measure_flops(platform, base::DType::f32).per_second;
  }
}

// The machine before its constants are fitted, as one GPU or `ranks` ranks on a CPU.
Machine unfitted(const config::System& system, const Platform& platform, int threads, int ranks,
                 const CalibrationOptions& options) {
  Machine m;
  m.name = options.name;
  m.source = fmt::format("measured by trireme calibrate on {}", platform.hardware);
  if (platform.is_gpu()) m.source += ", determinism " + system.determinism;
  m.processor.name = platform.hardware;
  m.processor.units = threads;
  m.domain.size = ranks;
  if (options.like) plan::take_unmeasured(*options.like, m);
  if (platform.is_gpu()) {
    m.processor.memory_bytes = static_cast<double>(platform.memory_bytes);
    const device::GpuStatus status = device::gpu_status();
    const device::GpuInfo& gpu = status.gpus.at(static_cast<size_t>(system.gpu));
    m.processor.units = gpu.multiprocessors;
    m.processor.hopper_attention = gpu.major == 9 && gpu.minor == 0;
  } else {
    m.processor.memory_bytes = static_cast<double>(sysconf(_SC_PHYS_PAGES)) *
                               static_cast<double>(sysconf(_SC_PAGE_SIZE)) / ranks;
    m.sources["processor.memory_gigabytes"] =
        fmt::format("of the whole machine, divided by {} ranks", ranks);
  }
  return m;
}

// Measures the backward passes of attention with the order of sums that `system` does not have. Its
// kernels need a new device.
void add_other_order(config::System system, const CalibrationOptions& options, plan::Times& times) {
  system.determinism = system.determinism == "l1" ? "fast" : "l1";
  Platform platform = make_platform(system);
  OperationTimer timer(platform, {.is_quick = options.is_quick, .measured = options.measured});
  timer.add_backwards(times);
}

}  // namespace

Calibration calibrate(const config::System& system, Platform& platform,
                      const CalibrationOptions& options) {
  if (options.like && !platform.is_gpu()) {
    throw base::ConfigError("--like is for --device cuda: the links of a CPU are measured");
  }
  const int threads = thread_count(system.threads);
  const int ranks = platform.is_gpu() ? 1 : std::max(1, device::host_cores().count() / threads);
  Calibration result;
  Machine& m = result.machine;
  m = unfitted(system, platform, threads, ranks, options);

  OperationTimer timer(platform, {.is_quick = options.is_quick, .measured = options.measured});
  if (options.begin) {
    options.begin("operations", timer.operations() + (platform.is_gpu() ? timer.backwards() : 0));
  }
  timer.add_all(result.times);
  if (platform.is_gpu()) add_other_order(system, options, result.times);
  if (ranks > 1) {
    result.times.collectives = thread_all_reduces(std::min(ranks, 8), threads, options.is_quick);
    m.domain.link = {.bytes_per_second = 1e9, .latency = 1e-5};
  }
  const plan::StatedPeaks peaks = stated_peaks(platform.hardware);
  plan::start_peaks(peaks, result.times, m);
  set_fp32_peak(peaks, platform, m);
  m = plan::fit_machine(m, result.times);
  plan::settle_peaks(peaks, platform.is_gpu(), m);

  if (options.begin) options.begin("steps", reference_step_count);
  const std::vector<plan::TimedStep> steps =
      reference_steps(system, options.is_quick, options.measured);
  result.steps = steps.size();
  plan::fit_step_factor(steps, m);
  result.warning = plan::clamp_noise(m);
  return result;
}

}  // namespace trireme::train
