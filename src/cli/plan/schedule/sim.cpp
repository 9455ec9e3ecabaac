// SPDX-License-Identifier: Apache-2.0
// trireme sim: simulates a model on a pipeline. Costs are the facts() of its layers divided by a
// given rate.
#include <algorithm>
#include <charconv>
#include <iterator>

#include "base/error.h"
#include "cli/plan/schedule/schedule_report.h"
#include "cli/verbs.h"
#include "config/config.h"
#include "config/files/machine_file.h"
#include "schedule/catalogue.h"
#include "schedule/generators/lanes.h"
#include "sim/model_costs.h"
#include "train/setup/setup.h"

namespace trireme::cli {
namespace {

using schedule::Schedule;

sim::Costs layers_of(const spec::ModelSpec& model, const spec::Plan& plan,
                     const spec::Backend& backend, double flops, double bytes, double float8) {
  return sim::layer_costs(model, {.shape = spec::local_shape_of(plan),
                                  .recipe = plan.recipe,
                                  .recompute = plan.recompute,
                                  .backend = backend,
                                  .flops_per_second = flops,
                                  .bytes_per_second = bytes,
                                  .float8_flops_per_second = float8});
}

// "2:1.5": rank 2 takes 1.5 times as long.
std::vector<double> slowdown_of(const Args& args, int ranks) {
  std::vector<double> slowdown;
  for (const std::string& text : args.list("--straggler")) {
    const char* const end = text.data() + text.size();
    int rank = -1;
    double factor = 0;
    const auto after_rank = std::from_chars(text.data(), end, rank);
    const bool has_colon = after_rank.ptr != end && *after_rank.ptr == ':';
    const auto after = has_colon ? std::from_chars(after_rank.ptr + 1, end, factor) : after_rank;
    if (!has_colon || after.ptr != end || rank < 0 || rank >= ranks || !(factor > 0)) {
      throw base::ConfigError(fmt::format(
          "--straggler {}: expected RANK:FACTOR, as 2:1.5, with a rank below {}", text, ranks));
    }
    slowdown.resize(static_cast<size_t>(ranks), 1);
    slowdown[static_cast<size_t>(rank)] = factor;
  }
  return slowdown;
}

double above_zero(const Args& args, const std::string& name) {
  const double number = args.number(name);
  if (!(number > 0)) throw base::ConfigError(fmt::format("{} {}: must be above 0", name, number));
  return number;
}

// What a rank computes in a second, in TFLOP/s.
struct RankSpeed {
  double tflops = 0;
  double float8 = 0;   // of products in 8 bits; 0: by the ratio of an H200
  std::string source;  // text behind the number in the title; empty: an option
};

// Returns the speed that large products reach on a machine.
RankSpeed reached(const spec::Machine& machine, spec::Precision precision) {
  const spec::Processor& p = machine.processor;
  const bool is_fp32 = precision == spec::Precision::fp32 || p.bf16_flops <= p.fp32_flops;
  return {.tflops = 1e-12 * p.gemm_reach * (is_fp32 ? p.fp32_flops : p.bf16_flops),
          .float8 = 1e-12 * p.fp8_reach * p.fp8_fast * p.fp8_flops,
          .source = fmt::format(" ({} of {})", is_fp32 ? "fp32" : "bf16", machine.name)};
}

RankSpeed speed_of(const Args& args, const config::Config& config, spec::Precision precision) {
  const std::string machine =
      args.has("--machine") ? args.text("--machine") : config.system.machine;
  RankSpeed speed;
  if (args.has("--tflops")) {
    speed.tflops = above_zero(args, "--tflops");
  } else if (args.has("--machine") || config.system.peak_tflops <= 0) {
    if (machine.empty()) {
      throw base::ConfigError(fmt::format(
          "the speed of a rank is not known: give --machine NAME (one of {}), or --tflops, the "
          "TFLOP/s that it reaches (or system.machine or system.peak_tflops)",
          fmt::join(config::machine_names(machine_folders()), ", ")));
    }
    speed = reached(config::machine_from_file(machine, machine_folders()), precision);
  } else {
    speed.tflops = config.system.peak_tflops;
  }
  if (args.has("--fp8-tflops")) speed.float8 = above_zero(args, "--fp8-tflops");
  return speed;
}

struct Pipeline {
  std::string name;
  Schedule schedule;
  std::vector<int> cut;
};

// Returns the pipeline of the options, or without any the one that train would run.
Pipeline pipeline_of(const Args& args, const config::Config& config, const spec::ModelSpec& model,
                     const spec::Plan& plan, const sim::Costs& layers) {
  const config::Parallelism& p = config.parallelism;
  const bool is_asked = args.has("--schedule") || args.has("--stages") || args.has("--chunks") ||
                        args.has("--microbatches");
  const std::string name =
      args.has("--schedule") ? args.text("--schedule") : p.pipeline_parallel_schedule;
  if (!is_asked) return {name, plan.schedule, plan.first_layer_of_stage};
  const int ranks = args.has("--stages") ? args.small_integer("--stages")
                                         : static_cast<int>(p.pipeline_parallel_degree);
  const int microbatches =
      args.has("--microbatches") ? args.small_integer("--microbatches") : plan.layout.accumulation;
  const base::Result<Schedule> made = schedule::generate(
      name, {ranks, microbatches, args.has("--chunks") ? args.small_integer("--chunks") : 0});
  if (!made) throw base::ConfigError(made.reason());
  const int stages = made.value().stages();
  const int layer_count = static_cast<int>(model.layers.size());
  if (stages > layer_count) {
    throw base::ConfigError(fmt::format(
        "{} stages, but {} has {} layers with embedding and head: at most {} ranks with {} chunk{}",
        stages, model.name, layer_count, std::max(1, layer_count / (stages / ranks)),
        stages / ranks, stages == ranks ? "" : "s"));
  }
  return {name, schedule::add_tied(schedule::add_reduce(schedule::add_p2p(made.value()))),
          sim::balanced_cut(layers, stages)};
}

int run_sim(const Args& args) {
  // The costs are those of a GPU.
  const config::Config asked = config::load(
      args.text("config"), {.overrides = args.overrides(), .model_folders = model_folders()});
  const config::Config config = config::settle_dtype(config::solved(asked, 0), true);
  const spec::ModelSpec model = spec::make_model(config.dims);
  const double bandwidth = args.has("--bandwidth") ? 1e9 * above_zero(args, "--bandwidth") : 0;
  const spec::Backend backend = spec::cuda_backend(true);
  const spec::Plan plan = train::make_plan(config, model, backend);
  const RankSpeed speed = speed_of(args, config, plan.layout.precision);
  const sim::Costs layers =
      layers_of(model, plan, backend, 1e12 * speed.tflops, bandwidth, 1e12 * speed.float8);

  const auto [name, schedule, cut] = pipeline_of(args, config, model, plan, layers);
  const sim::Links links{{{.latency = 1e-6 * args.number("--latency-us"),
                           .bytes_per_second = 1e9 * args.number("--link")}},
                         {}};
  const sim::Result result = sim::simulate(schedule, sim::stage_costs(layers, cut), links,
                                           {.slowdown = slowdown_of(args, schedule.ranks),
                                            .jitter = args.number("--jitter"),
                                            .seed = static_cast<uint64_t>(args.integer("--seed")),
                                            .timeline = true});
  std::string cut_text;
  for (const int first : cut) cut_text += fmt::format("{}{}", cut_text.empty() ? "" : " ", first);
  const std::string title = fmt::format(
      "{} on {}: {} ranks, {} micro-batches of {} tokens, {:.4g} TFLOP/s{}, stages start at layers "
      "{}",
      model.name, name, schedule.ranks, schedule.microbatches,
      config.training.local_batch_size * config.training.seq_len, speed.tflops, speed.source,
      cut_text);
  report({title, schedule, result, true}, args);
  return 0;
}

}  // namespace

Verb sim_verb() {
  std::vector<Option> options = {
      {.name = "config",
       .help = "Configuration: TOML file, or run.json of a run",
       .is_required = true},
      {.name = "--schedule",
       .help = "Name of a schedule of `trireme schedule`; default: the configuration's"},
      {.name = "--stages",
       .kind = Kind::integer,
       .help = "Number of pipeline ranks; default: parallelism.pipeline_parallel_degree"},
      {.name = "--chunks", .kind = Kind::integer, .help = "Stages per rank, for interleaved"},
      {.name = "--microbatches",
       .kind = Kind::integer,
       .help = "Micro-batches of one pipeline in a step; default: from the batch sizes"},
      {.name = "--machine",
       .help =
           "Machine whose large products set the speed: a name in machines/, or a machine file; "
           "default: system.machine"},
      {.name = "--tflops",
       .kind = Kind::number,
       .help = "Speed that a rank reaches, in TFLOP/s; default: that of the machine"},
      {.name = "--fp8-tflops",
       .kind = Kind::number,
       .help = "The same for products in 8 bits; default: that of the machine, or "
               "1.8 times --tflops, as on an H200"},
      {.name = "--bandwidth",
       .kind = Kind::number,
       .help =
           "Memory bandwidth of a rank in GB/s; without it memory-bound operations take no time"},
      {.name = "--link",
       .kind = Kind::number,
       .fallback = "0",
       .help = "Bandwidth between two ranks in GB/s, each way; 0: unlimited"},
      {.name = "--latency-us",
       .kind = Kind::number,
       .fallback = "0",
       .help = "Latency of a message in microseconds"},
      {.name = "--straggler",
       .kind = Kind::list,
       .help = "RANK:FACTOR: this rank takes FACTOR times as long; may be given several times"},
      {.name = "--jitter",
       .kind = Kind::number,
       .fallback = "0",
       .help = "Relative random deviation of the time of every action"},
      {.name = "--seed", .kind = Kind::integer, .fallback = "0", .help = "Seed of --jitter"}};
  std::vector<Option> common = report_options();
  std::ranges::move(common, std::back_inserter(options));
  return {
      .name = "sim",
      .summary = "Simulate the time of a run's model on a pipeline",
      .details =
          "The time of a layer is its FLOPs divided by the speed of a rank (--tflops, or what "
          "large\n"
          "products reach on --machine or system.machine), or its bytes divided by --bandwidth\n"
          "if that is longer. Layers are split into stages so that the slowest stage is as fast "
          "as\n"
          "possible. Without --schedule, --stages, --chunks and --microbatches, the schedule and "
          "the\n"
          "split are those that `trireme train` would run. Memory is that of activations, without\n"
          "weights.\n"
          "Any key of the configuration can be set as --section.key=value.\n\nExamples:\n"
          "  trireme sim configs/gpt2-124m.toml --tflops 100 --stages 4 --microbatches 16\n"
          "  trireme sim configs/gpt2-124m.toml --machine h100 --stages 4 --microbatches 16\n"
          "  trireme sim configs/gpt2-124m.toml --tflops 100 --schedule zb-h1 --stages 4 "
          "--link 25 --straggler 2:1.2 --json",
      .options = std::move(options),
      .takes_overrides = true,
      .run = run_sim};
}

}  // namespace trireme::cli
