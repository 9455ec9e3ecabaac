// SPDX-License-Identifier: Apache-2.0
#include "train/measure/step_bench.h"

#include <algorithm>

#include "base/check.h"
#include "base/text/json.h"
#include "device/accelerator.h"
#include "engine/engine.h"
#include "obs/clock.h"
#include "train/measure/random_batches.h"
#include "train/report/peaks.h"
#include "train/report/throughput.h"

namespace trireme::train {
namespace {

// Steps are queued without waiting for the device; events between them give their times.
void time_steps(engine::Engine& engine, engine::MicrobatchSource& source, int64_t steps,
                StepBench& result) {
  device::Stream& compute = engine.compute();
  compute.synchronize();
  const double begin = obs::steady_seconds();
  std::vector<device::Event> events = {compute.record_timed()};
  for (int64_t step = 0; step < steps; ++step) {
    engine.step(source, 3e-4);
    events.push_back(compute.record_timed());
  }
  compute.synchronize();
  result.wall_seconds = obs::steady_seconds() - begin;
  for (size_t i = 1; i < events.size(); ++i) {
    result.seconds.push_back(compute.seconds_between(events[i - 1], events[i]));
  }
  result.first_seconds = result.seconds.front();
  std::sort(result.seconds.begin(), result.seconds.end());
}

}  // namespace

StepBench bench_steps(const spec::ModelSpec& model, const StepBenchOptions& options) {
  TRIREME_CHECK(options.steps >= 1, "{} steps", options.steps);
  const int64_t steps = options.steps, warmup = options.warmup;
  const auto report = [&options](int64_t done) {
    if (options.progress) options.progress(done);
  };
  StepBench result;
  Platform platform = make_platform(options.system);
  result.hardware = platform.hardware;
  result.context_bytes = device::driver_used_bytes(*platform.device);
  const FitJob job = make_fit_job(model, platform.backend, options.work, options.layout);
  const spec::Plan& plan = job.plan;
  check_fits(job, platform, 1, options.keys);
  engine::Engine engine(*platform.device, model, plan, platform.backend,
                        {.capture = options.captures});
  result.plan = engine.plan();
  RandomBatches source(std::get<spec::HeadSpec>(model.layers.back()).vocab, plan.layout.micro_batch,
                       plan.seq_len);
  for (int64_t step = 0; step < warmup; ++step) {
    engine.step(source, 3e-4);
    engine.compute().synchronize();
    if (step == 0) result.startup_seconds = obs::steady_seconds() - options.start_seconds;
    report(step + 1);
  }
  const double before = obs::steady_seconds();
  time_steps(engine, source, steps, result);
  if (warmup == 0) {
    result.startup_seconds = before - options.start_seconds + result.first_seconds;
  }
  report(steps + warmup);
  result.was_captured = engine.is_captured();
  result.loss = engine.report().mean_loss;
  result.measured = engine.measured();
  result.ledger_bytes = platform.device->ledger().live();
  result.driver_used_bytes = device::driver_used_bytes(*platform.device);
  result.observed_steps = options.observed_steps;
  if (options.observed_steps > 0) {
    OpTimeline timeline(engine.compute());
    for (int64_t step = 0; step < options.observed_steps; ++step) {
      timeline.start();
      engine.step(source, 3e-4);
      for (TimedOp& op : timeline.finish()) result.observed.push_back(std::move(op));
    }
  }
  return result;
}

StepBenchPeaks bench_peaks(const StepBench& result, const config::System& system,
                           const PeakOptions& options) {
  const base::DType dtype = result.plan.recipe.storage;
  const auto known = known_flops(options.given_tflops, result.hardware, dtype);
  StepBenchPeaks peaks;
  std::optional<Platform> platform;
  const auto device = [&]() -> Platform& {
    if (!platform) platform.emplace(make_platform(system));
    return *platform;
  };
  if (!known || options.measures_gemm) peaks.gemm = measure_flops(device(), dtype);
  peaks.flops = known ? *known : *peaks.gemm;
  if (options.has_roofline) {
    auto bandwidth = datasheet_bandwidth(result.hardware);
    if (!bandwidth) bandwidth = measure_bandwidth(device());
    peaks.roofline =
        Roofline{family_times(result.observed, result.observed_steps), peaks.flops, *bandwidth};
  }
  return peaks;
}

base::Json to_json(const spec::ModelSpec& model, const StepBenchOptions& options,
                   const StepBench& r, const StepBenchPeaks& peaks) {
  const double rate = r.tokens() / r.median();
  const Utilisation u = utilisation(model, r.plan, rate, peaks.flops.per_second);
  base::Json out = {
      {"ok", true},
      {"model", model.name},
      {"parameters", spec::parameter_count(model)},
      {"device", r.hardware},
      {"determinism", options.system.determinism},
      {"captured", r.was_captured},
      {"dtype", r.plan.recipe.name},
      {"grad_dtype", base::name_of(r.plan.recipe.grad)},
      {"master_dtype", base::name_of(r.plan.optimizer.master)},
      {"recompute", spec::name_of(options.layout.recompute)},
      {"recompute_blocks", options.layout.recompute_blocks},
      {"threads", thread_count(options.system.threads)},
      {"micro_batch", r.plan.layout.micro_batch},
      {"seq_len", r.plan.seq_len},
      {"accumulate", r.plan.schedule.microbatches},
      {"head_chunk_rows", r.plan.head_chunk_rows},
      {"ffn_rows", r.plan.layout.ffn_rows},
      {"tokens_per_second", rate},
      {"tokens_per_second_wall",
       r.tokens() * static_cast<double>(r.seconds.size()) / r.wall_seconds},
      {"ms_per_step", 1e3 * r.median()},
      {"ms_per_step_fastest", 1e3 * r.seconds.front()},
      {"ms_per_step_slowest", 1e3 * r.seconds.back()},
      {"mfu", u.mfu},
      {"hfu", u.hfu},
      {"peak_tflops", peaks.flops.per_second / 1e12},
      {"peak_source", peaks.flops.source},
      {"mfu_formula", mfu_formula},
      {"peak_bytes",
       {{"predicted", r.plan.predicted.memory.front().total()}, {"measured", r.measured.total()}}},
      {"ledger_bytes", r.ledger_bytes},
      {"driver_used_bytes", r.driver_used_bytes},
      {"context_bytes", r.context_bytes},
      {"library_bytes", std::max<int64_t>(0, r.driver_used_bytes - r.ledger_bytes)},
      {"startup_seconds", r.startup_seconds},
      {"loss", r.loss}};
  if (peaks.gemm) {
    out["gemm_peak_tflops"] = peaks.gemm->per_second / 1e12;
    out["utilisation_of_gemm_peak"] = utilisation(model, r.plan, rate, peaks.gemm->per_second).mfu;
  }
  if (peaks.roofline) out["roofline"] = peaks.roofline->json();
  return out;
}

}  // namespace trireme::train
