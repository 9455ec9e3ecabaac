// SPDX-License-Identifier: Apache-2.0
// trireme bench train: the speed of training steps on random tokens.
#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/rng.h"
#include "cli/progress.h"
#include "cli/row_times.h"
#include "cli/verbs.h"
#include "config/model_file.h"
#include "engine/engine.h"
#include "obs/clock.h"
#include "train/setup.h"
#include "train/throughput.h"
#include "train/trainer.h"

namespace trireme::cli {
namespace {

class RandomTokens final : public engine::MicrobatchSource {
 public:
  RandomTokens(int64_t vocab, int64_t sequences, int64_t seq_len)
      : vocab_(static_cast<uint64_t>(vocab)), sequences_(sequences), seq_len_(seq_len) {}
  void fill(int /*index*/, const engine::HostMicrobatch& out) override {
    engine::set_equal_sequences(out, sequences_, seq_len_);
    for (size_t t = 0; t < out.tokens.size(); ++t) {
      out.tokens[t] = static_cast<int32_t>(base::rng_below(1, t, vocab_));
      out.labels[t] = static_cast<int32_t>(base::rng_below(1, t + 1, vocab_));
    }
  }

 private:
  uint64_t vocab_;
  int64_t sequences_, seq_len_;
};

spec::Recompute recompute_of(const std::string& name) {
  return name == "full"        ? spec::Recompute::full
         : name == "selective" ? spec::Recompute::selective
                               : spec::Recompute::none;
}

int run(const Args& args) {
  const double start = obs::steady_seconds();
  const int64_t steps = args.integer("--steps"), warmup = args.integer("--warmup");
  if (steps < 1 || warmup < 0) {
    throw base::ConfigError(fmt::format("--steps {} --warmup {}: at least 1 and 0", steps, warmup));
  }
  if (!(args.number("--peak-tflops") >= 0)) {
    throw base::ConfigError(
        fmt::format("--peak-tflops {}: 0 (measure it) or above", args.text("--peak-tflops")));
  }
  const spec::ModelDims dims = config::model_from_file(args.text("--model"), model_folders());
  const spec::ModelSpec model = spec::make_model(dims);
  const int64_t seq_len =
      args.integer("--seq") == 0 ? std::min<int64_t>(model.max_seq, 1024) : args.integer("--seq");
  const spec::Plan plan =
      spec::one_rank_plan(model,
                          {.microbatch_sequences = args.integer("--micro-batch"),
                           .seq_len = seq_len,
                           .microbatches = args.small_integer("--accumulate"),
                           .recipe = spec::recipe_from_name(args.text("--dtype")),
                           .recompute = recompute_of(args.text("--recompute"))},
                          {});
  const config::System system{.device = args.text("--device"),
                              .threads = args.integer("--threads")};
  const auto device = train::make_device(system);
  engine::Engine engine(*device, model, plan, {}, {});
  RandomTokens source(dims.vocab, plan.microbatch_sequences, plan.seq_len);
  Progress progress("bench train", "steps", steps + warmup);
  RowTimes rows;
  std::vector<double> seconds;
  double startup = 0;
  for (int64_t step = 0; step < steps + warmup; ++step) {
    if (args.flag("--by-row") && step == warmup) engine.compute().set_observer(&rows);
    const double begin = obs::steady_seconds();
    engine.step(source, 3e-4);
    engine.compute().synchronize();
    const double end = obs::steady_seconds();
    if (step == 0) startup = end - start;
    if (step >= warmup) seconds.push_back(end - begin);
    progress.update(step + 1);
  }
  rows.close();
  progress.finish();
  if (args.flag("--by-row")) fmt::print(stderr, "{}", rows.text(steps));

  std::sort(seconds.begin(), seconds.end());
  const double median = seconds[seconds.size() / 2];
  const double tokens = static_cast<double>(plan.microbatch_tokens() * plan.schedule.microbatches);
  const bool is_given = args.number("--peak-tflops") > 0;
  const double peak = is_given ? args.number("--peak-tflops") * 1e12
                               : train::measure_peak_flops(train::thread_count(system.threads));
  const train::Utilisation u = train::utilisation(model, engine.plan(), tokens / median, peak);
  const spec::MemoryTable predicted = engine.plan().predicted.memory.front();
  const spec::MemoryTable measured = engine.measured();
  if (args.wants_json()) {
    fmt::print("{}\n",
               base::Json{{"ok", true},
                          {"model", model.name},
                          {"parameters", spec::parameter_count(model)},
                          {"dtype", plan.recipe.name},
                          {"threads", train::thread_count(system.threads)},
                          {"tokens_per_second", tokens / median},
                          {"ms_per_step", 1e3 * median},
                          {"ms_per_step_fastest", 1e3 * seconds.front()},
                          {"ms_per_step_slowest", 1e3 * seconds.back()},
                          {"mfu", u.mfu},
                          {"hfu", u.hfu},
                          {"peak_tflops", peak / 1e12},
                          {"peak_source", is_given ? "given" : "measured fp32 GEMM"},
                          {"mfu_formula", "(6 N + 12 L h T) tokens/s / peak"},
                          {"peak_bytes",
                           {{"predicted", predicted.total()}, {"measured", measured.total()}}},
                          {"startup_seconds", startup},
                          {"loss", engine.report().mean_loss}}
                   .dump());
    return 0;
  }
  fmt::print("{}\n", train::memory_table_text(predicted, measured));
  fmt::print("tokens per second  {:.0f}\nms per step        {:.1f} ({:.1f} to {:.1f})\n",
             tokens / median, 1e3 * median, 1e3 * seconds.front(), 1e3 * seconds.back());
  fmt::print(
      "MFU                {:.1f} % of {:.4f} TFLOP/s ({}), (6 N + 12 L h T) tokens/s / peak\n",
      100 * u.mfu, peak / 1e12, is_given ? "given" : "measured fp32 GEMM");
  fmt::print("first step after   {:.2f} s\n", startup);
  return 0;
}

}  // namespace

Verb bench_train_verb() {
  return {
      .name = "bench train",
      .summary = "Speed, memory and utilisation of training steps on random tokens",
      .details =
          "Examples:\n"
          "  trireme bench train --model gpt2-10m --micro-batch 8 --seq 256 --steps 6\n"
          "  trireme bench train --model llama-15m --dtype bf16 --by-row",
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
           {.name = "--recompute",
            .fallback = "none",
            .help = "Of blocks",
            .choices = {"none", "selective", "full"}},
           {.name = "--device", .fallback = "auto", .help = "cpu or auto"},
           {.name = "--threads", .kind = Kind::integer, .fallback = "0", .help = "0: all cores"},
           {.name = "--peak-tflops",
            .kind = Kind::number,
            .fallback = "0",
            .help = "For MFU; 0: measured"},
           {.name = "--by-row",
            .kind = Kind::flag,
            .help = "Also time by operation and shape, on stderr"}},
      .run = run};
}

}  // namespace trireme::cli
