// SPDX-License-Identifier: Apache-2.0
#include "train/measure/step_bench.h"

#include <algorithm>
#include <memory>

#include "base/check.h"
#include "base/error.h"
#include "base/text/json.h"
#include "device/accelerator.h"
#include "engine/engine.h"
#include "obs/clock.h"
#include "spec/layout/layout_text.h"
#include "train/measure/random_batches.h"
#include "train/report/peaks.h"
#include "train/report/throughput.h"
#include "train/verify/verify_run.h"

namespace trireme::train {
namespace {

void time_steps(engine::Engine& engine, engine::MicrobatchSource& source, int64_t steps,
                StepBench& result) {
  engine.compute().synchronize();
  const double begin = obs::steady_seconds();
  result.seconds = step_seconds(engine, source, steps);
  result.wall_seconds = obs::steady_seconds() - begin;
  result.first_seconds = result.seconds.front();
  std::sort(result.seconds.begin(), result.seconds.end());
}

// Every step sends the same.
spec::TrafficTable per_step(spec::TrafficTable sent, int64_t steps) {
  for (const TrafficKind& kind : step_traffic_kinds()) sent.*kind.bytes /= steps;
  sent.other = 0;
  return sent;
}

// Steps after one whose rows exceeded the budget do nothing at their end.
void check_budget(const engine::StepReport& report, const spec::Layout& layout) {
  if (report.overflow == 0) return;
  throw base::ConfigError(fmt::format(
      "{} pairs of tokens and experts exceeded the row budget of {}: give a larger one, as "
      "row-budget={} in --layout",
      report.overflow, layout.row_budget, 2 * layout.row_budget));
}

base::Json memory_json(const spec::MemoryTable& m) {
  return {{"params", m.params},   {"grads", m.grads}, {"optim", m.optim},     {"stash", m.stash()},
          {"scratch", m.scratch}, {"comm", m.comm},   {"staging", m.staging}, {"total", m.total()}};
}

base::Json lone_json(const StepBenchOptions& options, const StepBench& r,
                     const LoneRankTime* time) {
  const LoneRankFacts& lone = *r.lone;
  base::Json coordinates, stages = base::Json::array(), sent;
  const auto add_axes = [&](const spec::AxisView& axes) {
    for (const spec::Axis axis : axes) coordinates[std::string(name_of(axis))] = lone.coord[axis];
  };
  add_axes(spec::dense_axes);
  if (spec::has_expert_axes(r.plan.mesh)) add_axes(spec::expert_axes);
  for (size_t i = 0; i < lone.stages.size(); ++i) {
    stages.push_back({{"stage", lone.stages[i]},
                      {"first_layer", lone.layers[i].first},
                      {"layers", lone.layers[i].last - lone.layers[i].first}});
  }
  for (const TrafficKind& kind : step_traffic_kinds()) {
    if (lone.sent.*kind.bytes == 0 && r.sent.*kind.bytes == 0) continue;
    sent[kind.name] = {{"predicted", lone.sent.*kind.bytes}, {"measured", r.sent.*kind.bytes}};
  }
  sent["total"] = {{"predicted", lone.sent.total()}, {"measured", r.sent.total()}};
  base::Json json = {
      {"rank", *options.as_rank},
      {"ranks", r.plan.layout.ranks()},
      {"layout", spec::to_text(r.plan.layout)},
      {"coordinates", coordinates},
      {"stages", stages},
      {"parameters", lone.parameters},
      {"hardware_flops", lone.hardware_flops},
      {"transfers", lone_transfers},
      {"sent_bytes", sent},
      {"stand_in_bytes", lone.stand_in_bytes},
      {"skipped_steps", r.skipped},
      {"memory", {{"predicted", memory_json(lone.memory)}, {"measured", memory_json(r.measured)}}},
      {"measured_seconds", r.median()},
      {"measured_seconds_without_transfers", r.transfers->step_seconds_alone},
      {"transfer_seconds", r.transfers->seconds},
      {"exposed_transfer_seconds", r.transfers->exposed_seconds},
      {"op_seconds", r.transfers->op_seconds},
      {"op_seconds_without_transfers", r.transfers->op_seconds_alone},
      {"predicted", nullptr}};
  if (time != nullptr) {
    json["predicted"] = {{"machine", time->machine},
                         {"compute_seconds", time->compute_seconds},
                         {"update_seconds", time->update_seconds},
                         {"step_seconds", time->step_seconds},
                         {"band", time->band}};
  }
  return json;
}

}  // namespace

std::vector<double> step_seconds(engine::Engine& engine, engine::MicrobatchSource& source,
                                 int64_t steps) {
  // Steps are queued without waiting for the device; events between them give their times.
  device::Stream& compute = engine.compute();
  compute.synchronize();
  std::vector<device::Event> events = {compute.record_timed()};
  for (int64_t step = 0; step < steps; ++step) {
    engine.step(source, 3e-4);
    events.push_back(compute.record_timed());
  }
  compute.synchronize();
  std::vector<double> seconds;
  for (size_t i = 1; i < events.size(); ++i) {
    seconds.push_back(compute.seconds_between(events[i - 1], events[i]));
  }
  return seconds;
}

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
  FitJob job = make_fit_job(model, platform.backend, options.work, options.layout);
  const spec::Plan& plan = job.plan;
  if (options.as_rank) count_lone_rank(job, *options.as_rank);
  check_fits(job, platform, 1, options.keys);
  engine::EngineOptions engine_options{.capture = options.captures};
  std::unique_ptr<LoneRank> lone;
  if (options.as_rank) {
    // Sums in the fixed order, which a run of such ranks has by default.
    lone = std::make_unique<LoneRank>(*platform.device, model, plan, *options.as_rank, true);
    lone->set_options(engine_options);
    result.has_loss = lone->has_head();
    result.lone = lone_rank_facts(model, plan, platform.backend, *options.as_rank);
  }
  engine::Engine engine(*platform.device, model, plan, platform.backend, engine_options,
                        lone ? &lone->mesh() : nullptr);
  result.plan = engine.plan();
  RandomBatches source(std::get<spec::HeadSpec>(model.layers.back()).vocab, plan.layout.micro_batch,
                       plan.seq_len);
  for (int64_t step = 0; step < warmup; ++step) {
    engine.step(source, 3e-4);
    engine.compute().synchronize();
    if (step == 0) result.startup_seconds = obs::steady_seconds() - options.start_seconds;
    report(step + 1);
  }
  const spec::TrafficTable sent_before = engine.traffic();
  const double before = obs::steady_seconds();
  time_steps(engine, source, steps, result);
  if (warmup == 0) {
    result.startup_seconds = before - options.start_seconds + result.first_seconds;
  }
  report(steps + warmup);
  result.was_captured = engine.is_captured();
  const engine::StepReport last = engine.report();
  if (result.lone) check_budget(last, plan.layout);
  result.loss = last.mean_loss;
  result.skipped = last.skipped;
  result.sent = per_step(engine.traffic() - sent_before, steps);
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
  if (options.copy_interval > 0) {
    TRIREME_CHECK(!lone, "copies of a rank without its peers");
    result.copies = bench_copies({.engine = engine,
                                  .source = source,
                                  .model = model,
                                  .device = *platform.device,
                                  .interval = options.copy_interval});
  }
  if (lone) {
    constexpr int64_t transfer_steps = 2;
    result.transfers = measure_transfers(engine, source, *lone, transfer_steps);
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
                   const StepBench& r, const StepBenchPeaks& peaks, const LoneRankTime* time) {
  const double peak = peaks.flops.per_second;
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
      {"ms_per_step", 1e3 * r.median()},
      {"ms_per_step_fastest", 1e3 * r.seconds.front()},
      {"ms_per_step_slowest", 1e3 * r.seconds.back()},
      {"peak_tflops", peak / 1e12},
      {"peak_source", peaks.flops.source},
      {"peak_bytes", {{"predicted", r.predicted().total()}, {"measured", r.measured.total()}}},
      {"ledger_bytes", r.ledger_bytes},
      {"driver_used_bytes", r.driver_used_bytes},
      {"context_bytes", r.context_bytes},
      {"library_bytes", std::max<int64_t>(0, r.driver_used_bytes - r.ledger_bytes)},
      {"startup_seconds", r.startup_seconds},
      {"loss", r.has_loss ? base::Json(r.loss) : base::Json()}};
  if (r.copies) out["copies"] = to_json(*r.copies);
  if (peaks.gemm) out["gemm_peak_tflops"] = peaks.gemm->per_second / 1e12;
  if (peaks.roofline) out["roofline"] = peaks.roofline->json();
  if (r.lone) {
    out["hfu"] = r.lone->hardware_flops / r.median() / peak;
    out["as_rank"] = lone_json(options, r, time);
    return out;
  }
  const double rate = r.tokens() / r.median();
  const Utilisation u = utilisation(model, r.plan, rate, peak);
  out["tokens_per_second"] = rate;
  out["tokens_per_second_wall"] =
      r.tokens() * static_cast<double>(r.seconds.size()) / r.wall_seconds;
  out["mfu"] = u.mfu;
  out["hfu"] = u.hfu;
  out["mfu_formula"] = mfu_formula;
  if (peaks.gemm) {
    out["utilisation_of_gemm_peak"] = utilisation(model, r.plan, rate, peaks.gemm->per_second).mfu;
  }
  return out;
}

}  // namespace trireme::train
