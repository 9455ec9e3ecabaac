// SPDX-License-Identifier: Apache-2.0
// trireme bench train: the speed of training steps on random tokens.
#include <algorithm>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/text/json.h"
#include "cli/bench/bench_report.h"
#include "cli/shell/device_options.h"
#include "cli/shell/progress.h"
#include "cli/verbs.h"
#include "config/files/model_file.h"
#include "device/accelerator.h"
#include "engine/engine.h"
#include "obs/clock.h"
#include "train/measure/op_times.h"
#include "train/measure/random_batches.h"
#include "train/report/peaks.h"
#include "train/setup/fit.h"
#include "train/setup/setup.h"

namespace trireme::cli {
namespace {

constexpr int64_t max_observed_steps = 3;

struct BenchJob {
  spec::Workload work;
  spec::Layout layout;
};

BenchJob job_of(const Args& args, const spec::ModelSpec& model) {
  const int64_t seq_len =
      args.integer("--seq") == 0 ? std::min<int64_t>(model.max_seq, 1024) : args.integer("--seq");
  if (args.integer("--head-chunk") < 0) {
    throw base::ConfigError(
        fmt::format("--head-chunk {}: 0 (chosen) or above", args.integer("--head-chunk")));
  }
  const int blocks = model.blocks();
  if (args.integer("--recompute-blocks") < -1 || args.integer("--recompute-blocks") > blocks) {
    throw base::ConfigError(fmt::format("--recompute-blocks {}: -1 (all) or from 0 to {}",
                                        args.integer("--recompute-blocks"), blocks));
  }
  if (args.integer("--accumulate") < 1) {
    throw base::ConfigError(
        fmt::format("--accumulate {}: at least 1", args.integer("--accumulate")));
  }
  spec::Layout l;
  l.micro_batch = args.integer("--micro-batch");
  l.accumulation = args.small_integer("--accumulate");
  l.precision = spec::precision_from_name(args.text("--dtype")).value_or(spec::Precision::bf16);
  l.grad_dtype = base::dtype_from_name(args.text("--grad-dtype"));
  l.master_dtype = base::dtype_from_name(args.text("--master-dtype"));
  l.recompute = spec::recompute_from_name(args.text("--recompute")).value_or(spec::Recompute::none);
  l.recompute_blocks = args.small_integer("--recompute-blocks");
  l.head_chunk_rows = args.integer("--head-chunk");
  l.deterministic = args.text("--determinism") == "l1";
  return {{.seq_len = seq_len}, l};
}

// Steps are queued without waiting for the device; events between them give their times.
void time_steps(engine::Engine& engine, engine::MicrobatchSource& source, int64_t steps,
                BenchResult& result) {
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

BenchResult measure(const Args& args, const spec::ModelSpec& model, const config::System& system,
                    double start) {
  const int64_t steps = args.integer("--steps"), warmup = args.integer("--warmup");
  BenchResult result;
  train::Platform platform = train::make_platform(system);
  result.hardware = platform.hardware;
  result.context_bytes = device::driver_used_bytes(*platform.device);
  const BenchJob asked = job_of(args, model);
  const train::FitJob job = train::make_fit_job(model, platform.backend, asked.work, asked.layout);
  const spec::Plan& plan = job.plan;
  train::check_fits(job, platform, 1,
                    {.micro_batch = "--micro-batch ",
                     .accumulate = "--accumulate ",
                     .head_chunk = "--head-chunk ",
                     .grad_dtype = "--grad-dtype ",
                     .master_dtype = "--master-dtype ",
                     .recompute = "--recompute "});
  engine::Engine engine(*platform.device, model, plan, platform.backend,
                        {.capture = !args.flag("--no-capture")});
  result.plan = engine.plan();
  train::RandomBatches source(std::get<spec::HeadSpec>(model.layers.back()).vocab,
                              plan.layout.micro_batch, plan.seq_len);
  Progress progress("bench train", "steps", steps + warmup);
  for (int64_t step = 0; step < warmup; ++step) {
    engine.step(source, 3e-4);
    engine.compute().synchronize();
    if (step == 0) result.startup_seconds = obs::steady_seconds() - start;
    progress.update(step + 1);
  }
  const double before = obs::steady_seconds();
  time_steps(engine, source, steps, result);
  if (warmup == 0) result.startup_seconds = before - start + result.first_seconds;
  progress.update(steps + warmup);
  result.was_captured = engine.is_captured();
  result.loss = engine.report().mean_loss;
  result.measured = engine.measured();
  result.ledger_bytes = platform.device->ledger().live();
  result.driver_used_bytes = device::driver_used_bytes(*platform.device);
  if (args.flag("--by-row") || args.flag("--roofline")) {
    train::OpTimeline timeline(engine.compute());
    result.observed_steps = std::min(steps, max_observed_steps);
    for (int64_t step = 0; step < result.observed_steps; ++step) {
      timeline.start();
      engine.step(source, 3e-4);
      for (train::TimedOp& op : timeline.finish()) result.observed.push_back(std::move(op));
    }
  }
  progress.finish();
  return result;
}

// After the engine is gone, so that start-up has none of this.
BenchPeaks peaks_of(const Args& args, const config::System& system, const BenchResult& result) {
  const base::DType dtype = result.plan.recipe.storage;
  const auto known = train::known_flops(args.number("--peak-tflops"), result.hardware, dtype);
  BenchPeaks peaks;
  std::optional<train::Platform> platform;
  const auto device = [&]() -> train::Platform& {
    if (!platform) platform.emplace(train::make_platform(system));
    return *platform;
  };
  if (!known || args.flag("--gemm-peak")) peaks.gemm = train::measure_flops(device(), dtype);
  peaks.flops = known ? *known : *peaks.gemm;
  if (args.flag("--roofline")) {
    auto bandwidth = train::datasheet_bandwidth(result.hardware);
    if (!bandwidth) bandwidth = train::measure_bandwidth(device());
    peaks.roofline = train::Roofline{train::family_times(result.observed, result.observed_steps),
                                     peaks.flops, *bandwidth};
  }
  return peaks;
}

int run_bench_train(const Args& args) {
  const double start = obs::steady_seconds();
  if (args.integer("--steps") < 1 || args.integer("--warmup") < 0) {
    throw base::ConfigError(fmt::format("--steps {} --warmup {}: at least 1 and 0",
                                        args.integer("--steps"), args.integer("--warmup")));
  }
  if (!(args.number("--peak-tflops") >= 0)) {
    throw base::ConfigError(fmt::format(
        "--peak-tflops {}: 0 (the datasheet's, or measured) or above", args.text("--peak-tflops")));
  }
  const spec::ModelSpec model =
      spec::make_model(config::model_from_file(args.text("--model"), model_folders()));
  const config::System system = system_of(args);
  const BenchResult result = measure(args, model, system, start);
  if (args.flag("--by-row")) {
    train::OpTimes rows;
    rows.add(result.observed);
    fmt::print(stderr, "{}", rows.text(result.observed_steps));
  }
  const BenchPeaks peaks = peaks_of(args, system, result);
  const base::Json json = bench_json(args, model, result, peaks);
  if (args.wants_json()) {
    fmt::print("{}\n", json.dump());
  } else {
    print_bench(result, peaks, json);
  }
  return 0;
}

}  // namespace

Verb bench_train_verb() {
  Verb verb = {
      .name = "bench train",
      .summary = "Speed, memory and utilisation of training steps on random tokens",
      .details =
          "Timed steps are queued without waiting for the device. --by-row and --roofline observe\n"
          "up to three further steps, which run uncaptured.\n\n"
          "Examples:\n"
          "  trireme bench train --model gpt2-10m --micro-batch 8 --seq 256 --steps 6\n"
          "  trireme bench train --model llama-11m --dtype bf16 --by-row",
      .options =
          {{.name = "--model", .help = "Name of a model file, or a path", .is_required = true},
           {.name = "--micro-batch", .kind = Kind::integer, .fallback = "8", .help = "Sequences"},
           {.name = "--seq",
            .kind = Kind::integer,
            .fallback = "0",
            .help = "Tokens of a sequence; 0: the model's, at most 1024"},
           {.name = "--accumulate",
            .kind = Kind::integer,
            .fallback = "1",
            .help = "Micro-batches of a step"},
           {.name = "--steps", .kind = Kind::integer, .fallback = "6", .help = "Timed steps"},
           {.name = "--warmup", .kind = Kind::integer, .fallback = "2", .help = "Steps before"},
           {.name = "--dtype",
            .fallback = "fp32",
            .help = "fp32 or bf16",
            .choices = {"fp32", "bf16"}},
           {.name = "--grad-dtype",
            .fallback = "f32",
            .help = "In which gradients are summed",
            .choices = {"f32", "bf16"}},
           {.name = "--master-dtype",
            .fallback = "f32",
            .help = "Master weights with bf16: f32, or u16 (the 16 bits that bf16 lacks of fp32)",
            .choices = {"f32", "u16"}},
           {.name = "--head-chunk",
            .kind = Kind::integer,
            .fallback = "0",
            .help = "Rows of logits at one time; 0: chosen for the device"},
           {.name = "--recompute",
            .fallback = "none",
            .help = "Of blocks",
            .choices = {"none", "selective", "full"}},
           {.name = "--recompute-blocks",
            .kind = Kind::integer,
            .fallback = "-1",
            .help = "Of how many blocks, the first ones; -1: of all"},
           {.name = "--no-capture",
            .kind = Kind::flag,
            .help = "Do not replay steps from a captured graph"},
           {.name = "--peak-tflops",
            .kind = Kind::number,
            .fallback = "0",
            .help = "For MFU; 0: the datasheet's, or measured"},
           {.name = "--gemm-peak",
            .kind = Kind::flag,
            .help = "Also measure the peak of matrix products here"},
           {.name = "--by-row",
            .kind = Kind::flag,
            .help = "Also time by operation and shape, on stderr"},
           {.name = "--roofline",
            .kind = Kind::flag,
            .help = "Also FLOPs, bytes, time and bound by family of kernels"}},
      .run = run_bench_train};
  for (const Option& option : device_options()) verb.options.push_back(option);
  return verb;
}

}  // namespace trireme::cli
