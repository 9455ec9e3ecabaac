// SPDX-License-Identifier: Apache-2.0
// trireme bench train: measures training steps on random tokens.
#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/text/json.h"
#include "cli/bench/bench_rank.h"
#include "cli/bench/bench_report.h"
#include "cli/bench/op_time_text.h"
#include "cli/shell/device_options.h"
#include "cli/shell/progress.h"
#include "cli/verbs.h"
#include "config/files/model_file.h"
#include "obs/clock.h"
#include "train/measure/op_times.h"
#include "train/measure/step_bench.h"

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
        fmt::format("--head-chunk {}: must be 0 (chosen for the device) or above",
                    args.integer("--head-chunk")));
  }
  if (args.integer("--ffn-rows") < 0) {
    throw base::ConfigError(
        fmt::format("--ffn-rows {}: must be 0 (no tiles) or above", args.integer("--ffn-rows")));
  }
  const int blocks = model.blocks();
  if (args.integer("--recompute-blocks") < -1 || args.integer("--recompute-blocks") > blocks) {
    throw base::ConfigError(fmt::format("--recompute-blocks {}: must be -1 (all) or from 0 to {}",
                                        args.integer("--recompute-blocks"), blocks));
  }
  if (args.integer("--accumulate") < 1) {
    throw base::ConfigError(
        fmt::format("--accumulate {}: must be at least 1", args.integer("--accumulate")));
  }
  spec::Layout l;
  l.micro_batch = args.integer("--micro-batch");
  l.accumulation = args.small_integer("--accumulate");
  l.precision = spec::precision_from_name(args.text("--dtype")).value_or(spec::Precision::bf16);
  l.bf16_first = args.small_integer("--bf16-first");
  l.bf16_last = args.small_integer("--bf16-last");
  l.grad_dtype = base::dtype_from_name(args.text("--grad-dtype"));
  l.master_dtype = base::dtype_from_name(args.text("--master-dtype"));
  l.recompute = spec::recompute_from_name(args.text("--recompute")).value_or(spec::Recompute::none);
  l.recompute_blocks = args.small_integer("--recompute-blocks");
  l.head_chunk_rows = args.integer("--head-chunk");
  l.ffn_rows = args.integer("--ffn-rows");
  l.deterministic = args.text("--determinism") == "l1";
  return {{.seq_len = seq_len}, l};
}

train::StepBenchOptions bench_options(const Args& args, const spec::ModelSpec& model,
                                      double start_seconds) {
  const BenchJob job = job_of(args, model);
  const int64_t steps = args.integer("--steps");
  const bool observes = args.flag("--by-op") || args.flag("--roofline");
  return {.work = job.work,
          .layout = job.layout,
          .system = system_of(args),
          .steps = steps,
          .warmup = args.integer("--warmup"),
          .captures = !args.flag("--no-capture"),
          .observed_steps = observes ? std::min(steps, max_observed_steps) : 0,
          .copy_interval = args.integer("--copies"),
          .keys = {.micro_batch = "--micro-batch ",
                   .accumulate = "--accumulate ",
                   .head_chunk = "--head-chunk ",
                   .grad_dtype = "--grad-dtype ",
                   .master_dtype = "--master-dtype ",
                   .recompute = "--recompute "},
          .start_seconds = start_seconds};
}

int run_bench_train(const Args& args) {
  const double start = obs::steady_seconds();
  if (args.integer("--steps") < 1 || args.integer("--warmup") < 0) {
    throw base::ConfigError(fmt::format("--steps {} --warmup {}: must be at least 1 and 0",
                                        args.integer("--steps"), args.integer("--warmup")));
  }
  if (args.integer("--copies") < 0 || (args.integer("--copies") > 0 && args.has("--as-rank"))) {
    throw base::ConfigError(fmt::format(
        "--copies {}: must be 0 (none) or above, and not be used with --as-rank, which runs a rank "
        "without the others that it would agree with",
        args.integer("--copies")));
  }
  if (!(args.number("--peak-tflops") >= 0)) {
    throw base::ConfigError(
        fmt::format("--peak-tflops {}: must be 0 (from the datasheet, or measured) or above",
                    args.text("--peak-tflops")));
  }
  const spec::ModelSpec model =
      spec::make_model(config::model_from_file(args.text("--model"), model_folders()));
  train::StepBenchOptions options = bench_options(args, model, start);
  take_rank(args, options);
  const std::optional<train::LoneRankTime> time = rank_time(args, model, options);
  Progress progress("bench train", "steps", options.steps + options.warmup);
  options.progress = [&progress](int64_t done) { progress.update(done); };
  const train::StepBench result = train::bench_steps(model, options);
  progress.finish();
  if (args.flag("--by-op")) {
    fmt::print(stderr, "{}", to_text(train::op_times(result.observed), result.observed_steps));
  }
  // Measured after the engine is destroyed, so that it does not count as start-up.
  const train::StepBenchPeaks peaks =
      train::bench_peaks(result, options.system,
                         {.given_tflops = args.number("--peak-tflops"),
                          .measures_gemm = args.flag("--gemm-peak"),
                          .has_roofline = args.flag("--roofline")});
  const base::Json json = train::to_json(model, options, result, peaks, time ? &*time : nullptr);
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
      .summary = "Measure speed, memory and utilisation of training steps on random tokens",
      .details =
          "Timed steps are queued without waiting for the device. --by-op and --roofline time up "
          "to\n"
          "three further steps, which are not replayed from a captured graph.\n\n"
          "--copies N runs further steps in pairs of windows, without copies of the state in\n"
          "memory (elastic.peer) and with one after every N-th step, and prints how much longer\n"
          "these take.\n\n"
          "--as-rank R --layout TEXT runs one rank of a larger job alone: its true shapes, "
          "schedule,\n"
          "buckets and shards. Messages of other ranks are replaced by copies within the device, "
          "of the\n"
          "same size and on the same stream. Four further steps, traced, give the cost of "
          "transfers "
          "beside\n"
          "compute. Without other options the layout has "
          "the defaults of `trireme plan --layout`: bf16 and micro-batches of one sequence.\n\n"
          "Examples:\n"
          "  trireme bench train --model gpt2-10m --micro-batch 8 --seq 256 --steps 6\n"
          "  trireme bench train --model llama-11m --dtype bf16 --by-op\n"
          "  trireme bench train --model llama-11m --as-rank 3 --layout 'tp=2 pp=2 accumulate=4'",
      .options = {{.name = "--model",
                   .help = "Model: a name in configs/models, or a file",
                   .is_required = true},
                  {.name = "--micro-batch",
                   .kind = Kind::integer,
                   .fallback = "8",
                   .help = "Sequences of a micro-batch"},
                  {.name = "--seq",
                   .kind = Kind::integer,
                   .fallback = "0",
                   .help = "Sequence length in tokens; 0: the model's max_seq, at most 1024"},
                  {.name = "--accumulate",
                   .kind = Kind::integer,
                   .fallback = "1",
                   .help = "Micro-batches in a step (gradient accumulation)"},
                  {.name = "--steps",
                   .kind = Kind::integer,
                   .fallback = "6",
                   .help = "Number of timed steps"},
                  {.name = "--warmup",
                   .kind = Kind::integer,
                   .fallback = "2",
                   .help = "Number of steps before the timed ones"},
                  {.name = "--dtype",
                   .fallback = "fp32",
                   .help = "Recipe of number formats",
                   .choices = {"fp32", "bf16", "fp16", "fp8-tensor", "fp8-block", "fp8-delayed"}},
                  {.name = "--bf16-first",
                   .kind = Kind::integer,
                   .fallback = "0",
                   .help = "First blocks that stay in bf16 under a recipe of fp8"},
                  {.name = "--bf16-last",
                   .kind = Kind::integer,
                   .fallback = "0",
                   .help = "Last blocks that stay in bf16 under a recipe of fp8"},
                  {.name = "--grad-dtype",
                   .fallback = "f32",
                   .help = "Dtype in which gradients are accumulated",
                   .choices = {"f32", "bf16"}},
                  {.name = "--master-dtype",
                   .fallback = "f32",
                   .help = "Master weights with bf16: f32, or u16 (the low 16 bits of fp32; the "
                           "bf16 weight has the "
                           "high ones)",
                   .choices = {"f32", "u16"}},
                  {.name = "--head-chunk",
                   .kind = Kind::integer,
                   .fallback = "0",
                   .help = "Rows of logits that are computed at once; 0: chosen for the device"},
                  {.name = "--ffn-rows",
                   .kind = Kind::integer,
                   .fallback = "0",
                   .help = "Rows of a block's feed-forward that are computed at once, in tiles "
                           "that the backward recomputes; 0: all, without tiles"},
                  {.name = "--recompute",
                   .fallback = "none",
                   .help = "Recompute policy of blocks",
                   .choices = {"none", "selective", "full"}},
                  {.name = "--recompute-blocks",
                   .kind = Kind::integer,
                   .fallback = "-1",
                   .help =
                       "Number of blocks, from the first, that --recompute applies to; -1: all"},
                  {.name = "--no-capture",
                   .kind = Kind::flag,
                   .help = "Do not replay steps from a captured graph"},
                  {.name = "--peak-tflops",
                   .kind = Kind::number,
                   .fallback = "0",
                   .help =
                       "Peak that MFU refers to, in TFLOP/s; 0: from the datasheet, or measured"},
                  {.name = "--gemm-peak",
                   .kind = Kind::flag,
                   .help = "Also measure the peak of matrix products on this device"},
                  {.name = "--by-op",
                   .kind = Kind::flag,
                   .help = "Also print the time of each operation and shape, on stderr",
                   .old_name = "--by-row"},
                  {.name = "--roofline",
                   .kind = Kind::flag,
                   .help = "Also print FLOPs, bytes, time and bound of each family of kernels"},
                  {.name = "--copies",
                   .kind = Kind::integer,
                   .fallback = "0",
                   .help = "Also measure what copies of the state in memory cost, one after so "
                           "many steps; 0: none"}},
      .run = run_bench_train};
  for (const Option& option : bench_rank_options()) verb.options.push_back(option);
  for (const Option& option : device_options()) verb.options.push_back(option);
  return verb;
}

}  // namespace trireme::cli
