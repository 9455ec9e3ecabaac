// SPDX-License-Identifier: Apache-2.0
// Times training steps of a small model on the CPU, on random tokens, and prints one JSON line.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/rng.h"
#include "device/cpu/cpu_device.h"
#include "engine/engine.h"
#include "kernels/ops.h"
#include "kernels/table.h"
#include "spec/plan.h"

namespace {

using namespace trireme;  // NOLINT(google-build-using-namespace)
using Clock = std::chrono::steady_clock;

struct BenchModel {
  spec::ModelDims dims;
  int64_t sequences, seq_len;
};

// The shapes of the PyTorch peer.
const std::map<std::string, BenchModel> models = {{"gpt2-10m",
                                                   {{.name = "gpt2-10m",
                                                     .family = spec::Family::gpt2,
                                                     .layers = 6,
                                                     .hidden = 384,
                                                     .heads = 6,
                                                     .ffn = 1536,
                                                     .vocab = 256,
                                                     .max_seq = 256},
                                                    8,
                                                    256}},
                                                  {"llama-15m",
                                                   {{.name = "llama-15m",
                                                     .family = spec::Family::llama,
                                                     .layers = 6,
                                                     .hidden = 384,
                                                     .heads = 6,
                                                     .kv_heads = 2,
                                                     .ffn = 1024,
                                                     .vocab = 4096,
                                                     .max_seq = 256},
                                                    8,
                                                    256}},
                                                  {"gpt2-124m",
                                                   {{.name = "gpt2-124m",
                                                     .family = spec::Family::gpt2,
                                                     .layers = 12,
                                                     .hidden = 768,
                                                     .heads = 12,
                                                     .ffn = 3072,
                                                     .vocab = 50304,
                                                     .max_seq = 1024},
                                                    2,
                                                    256}}};

struct Options {
  std::string model = "gpt2-10m";
  std::string recipe = "fp32";
  int threads = 2;
  int steps = 8;
  bool by_row = false;
};

class RandomTokens final : public engine::MicrobatchSource {
 public:
  explicit RandomTokens(const BenchModel& model) : model_(model) {}
  void fill(int, const engine::HostMicrobatch& out) override {
    engine::set_equal_sequences(out, model_.sequences, model_.seq_len);
    const auto vocab = static_cast<uint64_t>(model_.dims.vocab);
    for (size_t t = 0; t < out.tokens.size(); ++t) {
      out.tokens[t] = static_cast<int32_t>(base::rng_below(1, t, vocab));
      out.labels[t] = static_cast<int32_t>(base::rng_below(1, t + 1, vocab));
    }
  }

 private:
  const BenchModel& model_;
};

// With inline streams an operation runs between its own report and the next one: the time between
// is its time.
class RowTimes final : public kernels::OpObserver {
 public:
  void op(const device::Stream&, const spec::OpCost& cost) override {
    const auto now = Clock::now();
    close(now);
    last_ = fmt::format("{} {}x{}x{}", spec::name_of(cost.kind), cost.m, cost.n, cost.k);
    flops_[last_] += cost.flops;
    begin_ = now;
  }
  void close(Clock::time_point now) {
    if (!last_.empty()) seconds_[last_] += std::chrono::duration<double>(now - begin_).count();
    last_.clear();
  }
  void print(int steps) const {
    std::vector<std::pair<double, std::string>> rows;
    for (const auto& [name, seconds] : seconds_) rows.emplace_back(seconds, name);
    std::sort(rows.rbegin(), rows.rend());
    for (const auto& [seconds, name] : rows) {
      fmt::print(stderr, "{:9.3f} ms  {:6.1f} GFLOP/s  {}\n", 1e3 * seconds / steps,
                 flops_.at(name) / seconds / 1e9, name);
    }
  }

 private:
  std::string last_;
  Clock::time_point begin_;
  std::map<std::string, double> seconds_, flops_;
};

void run(const Options& o) {
  const auto found = models.find(o.model);
  if (found == models.end()) {
    std::string known;
    for (const auto& [name, model] : models) known += " " + name;
    throw base::ConfigError(fmt::format("no model '{}'; known are{}", o.model, known));
  }
  const BenchModel& bench = found->second;
  const auto start = Clock::now();
  const spec::ModelSpec model = spec::make_model(bench.dims);
  const spec::Plan plan = spec::one_rank_plan(model,
                                              {.microbatch_sequences = bench.sequences,
                                               .seq_len = bench.seq_len,
                                               .recipe = spec::recipe_from_name(o.recipe)},
                                              {});
  device::CpuDevice device(kernels::cpu_kernels(), {.threads = o.threads});
  engine::Engine engine(device, model, plan, {}, {});
  RandomTokens source(bench);
  const int warmup = std::min(2, o.steps - 1);
  std::vector<double> seconds;
  RowTimes rows;
  double startup = 0;
  for (int step = 0; step < o.steps; ++step) {
    const auto begin = Clock::now();
    if (o.by_row && step == warmup) engine.compute().set_observer(&rows);
    engine.step(source, 3e-4);
    engine.compute().synchronize();
    const auto end = Clock::now();
    if (step == 0) startup = std::chrono::duration<double>(end - start).count();
    if (step >= warmup) seconds.push_back(std::chrono::duration<double>(end - begin).count());
  }
  rows.close(Clock::now());
  if (o.by_row) rows.print(o.steps - warmup);
  std::sort(seconds.begin(), seconds.end());
  const double median = seconds[seconds.size() / 2];
  const double tokens = static_cast<double>(plan.microbatch_tokens());
  const base::Json out = {{"model", o.model},
                          {"recipe", o.recipe},
                          {"threads", o.threads},
                          {"params", spec::parameter_count(model)},
                          {"tokens_per_second", tokens / median},
                          {"ms_per_step", 1e3 * median},
                          {"ms_per_step_fastest", 1e3 * seconds.front()},
                          {"ms_per_step_slowest", 1e3 * seconds.back()},
                          {"gflops_per_second", plan.predicted.model_flops / median / 1e9},
                          {"loss", engine.report().mean_loss},
                          {"peak_bytes_predicted", plan.predicted.memory.front().total()},
                          {"peak_bytes_measured", engine.measured().total()},
                          {"startup_seconds", startup}};
  fmt::print("{}\n", out.dump());
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  CLI::App app{"Times training steps of a small model on the CPU; prints one JSON line."};
  app.add_option("--model", o.model, "gpt2-10m, llama-15m or gpt2-124m")->capture_default_str();
  app.add_option("--recipe", o.recipe, "fp32 or bf16")->capture_default_str();
  app.add_option("--threads", o.threads, "CPU threads")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  app.add_option("--steps", o.steps, "Steps in all; the first two are warm-up")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000000));
  app.add_flag("--by-row", o.by_row, "Also print time by operation and shape, on stderr");
  CLI11_PARSE(app, argc, argv);
  try {
    run(o);
  } catch (const std::exception& error) {
    fmt::print(stderr, "train_bench: {}\n", error.what());
    return 1;
  }
  return 0;
}
