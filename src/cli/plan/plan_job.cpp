// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/plan_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "cli/plan/plan_limits.h"
#include "cli/plan/plan_words.h"
#include "cli/verbs.h"
#include "config/config.h"
#include "config/document.h"
#include "config/files/machine_file.h"
#include "config/files/model_file.h"
#include "config/files/stack_file.h"
#include "config/spelling.h"
#include "obs/terminal/number_text.h"
#include "plan/import/config_layout.h"
#include "plan/import/from_hf.h"
#include "plan/import/from_megatron.h"
#include "plan/import/from_torchtitan.h"
#include "spec/layout/layout_text.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;
using spec::Layout;

constexpr int64_t max_gpus = 1 << 20, max_sequences = 1 << 30;
constexpr double max_run_tokens = 1e18;

constexpr const char* layouts_help =
    "A layout in words, as \"tp=8 sp pp=4 interleaved=3 zero=1 micro=2 full\"";

plan::Stack shipped_stack(const std::string& name) {
  return config::stack_from_file(name, stack_folders());
}

void take_config(const Args& args, PlanQuestion& q) {
  const config::Config config = config::load(
      args.text("config"), {.overrides = args.overrides(), .model_folders = model_folders()});
  q.job = plan::job_of(config);
  q.model = config.model.name;
  q.asked = plan::layout_of(config);
  q.is_dtype_open = config.training.dtype == "auto";
  q.gpus = q.asked->ranks();
  q.types = *q.asked;
}

void take_described(const plan::Described& d, PlanQuestion& q) {
  q.job = d.job;
  q.asked = d.layout;
  q.own_stack = d.stack;
  q.gpus = d.gpus;
  q.taken = d.assumed;
  q.ignored = d.ignored;
  if (d.gpus == 0 && q.asked) q.gpus = q.asked->ranks();
}

// A word that is neither an option nor a key of a configuration. Its value would else be taken for
// the configuration.
void check_keys(const Args& args) {
  for (const std::string& word : args.overrides()) {
    const std::string name = word.substr(0, word.find('='));
    if (!name.starts_with("--") || name.find('.') != std::string::npos) continue;
    std::vector<std::string> options;
    for (const Option& option : plan_question_options()) options.push_back(option.name);
    const std::vector<std::string_view> names(options.begin(), options.end());
    const auto near = config::nearest(name, names);
    throw base::ConfigError(fmt::format("{}: not an option of plan{}; run `trireme plan --help`",
                                        name,
                                        near ? fmt::format(", did you mean {}?", *near) : ""));
  }
}

// Exactly one thing says what is planned.
void check_sources(const Args& args) {
  check_keys(args);
  std::vector<std::string> given;
  for (const char* name :
       {"config", "--model", "--from-hf", "--from-megatron", "--from-torchtitan"}) {
    if (args.has(name)) given.emplace_back(name == std::string("config") ? args.text(name) : name);
  }
  if (given.size() > 1) {
    throw base::ConfigError(
        fmt::format("{} each say what is planned: give one of them", fmt::join(given, " and ")));
  }
  if (!args.overrides().empty() && !args.has("config")) {
    throw base::ConfigError(
        fmt::format("{}: changes a configuration, and none is given", args.overrides().front()));
  }
}

void take_source(const Args& args, PlanQuestion& q) {
  check_sources(args);
  const int64_t gpus = args.has("--gpus") ? args.integer("--gpus") : 0;
  const int64_t seq_len = args.has("--seq-len") ? args.integer("--seq-len") : 0;
  if (args.has("--from-megatron")) {
    take_described(plan::from_megatron(args.text("--from-megatron"), gpus, shipped_stack), q);
  } else if (args.has("--from-torchtitan")) {
    const fs::path file = args.text("--from-torchtitan");
    take_described(
        plan::from_torchtitan(config::read_text(file), file.string(), gpus, shipped_stack), q);
  } else if (args.has("--from-hf")) {
    take_described(plan::from_hf_file(args.text("--from-hf"), seq_len), q);
    q.model = args.text("--from-hf");
    q.own_stack.reset();
  } else if (args.has("config")) {
    take_config(args, q);
  } else if (args.has("--model")) {
    q.model = args.text("--model");
    const spec::ModelDims dims = config::model_from_file(q.model, model_folders());
    q.job.model = spec::make_model(dims);
    q.job.seq_len = std::min<int64_t>(dims.max_seq, 8192);
  } else {
    throw base::ConfigError(
        "nothing to plan: give a configuration, --model, --from-hf, --from-megatron or "
        "--from-torchtitan");
  }
}

// Whose rules price it, and in what gradients and master weights are kept: as the configuration or
// the options say.
void take_stack(const Args& args, PlanQuestion& q) {
  if (args.has("--stack")) {
    q.stack = shipped_stack(args.text("--stack"));
  }
  for (const char* option : {"--grad-dtype", "--master-dtype"}) {
    if (!args.has(option)) continue;
    if (!q.stack.is_engine()) {
      throw base::ConfigError(
          fmt::format("{} is for Trireme; --stack {} has its own", option, q.stack.name));
    }
    const base::DType dtype = base::dtype_from_name(args.text(option));
    if (option == std::string("--grad-dtype")) {
      q.types.grad_dtype = q.types.reduce_dtype = dtype;
    } else {
      q.types.master_dtype = dtype;
    }
  }
  if (!q.stack.is_engine() && args.has("--out")) {
    throw base::ConfigError(fmt::format(
        "--out writes a configuration of Trireme, and --stack {} prices another program: give "
        "one of them",
        q.stack.name));
  }
}

// The number within 5 % that halves most often; of several, the nearest.
int64_t roundest(int64_t number) {
  for (int64_t unit = int64_t{1} << 40; unit > 1; unit /= 2) {
    const int64_t nearest = (number + unit / 2) / unit * unit;
    if (nearest > 0 && std::abs(nearest - number) * 20 <= number) return nearest;
  }
  return number;
}

void take_seq_len(const Args& args, PlanQuestion& q) {
  if (!args.has("--seq-len")) return;
  const int64_t seq_len = args.integer("--seq-len");
  if (seq_len < 1 || seq_len > q.job.model.max_seq) {
    throw base::ConfigError(
        fmt::format("--seq-len {}: from 1 to the model's max_seq = {}; a longer one needs a model "
                    "file that has it",
                    seq_len, q.job.model.max_seq));
  }
  q.job.seq_len = seq_len;
}

void take_batch(const Args& args, PlanQuestion& q) {
  if (args.has("--batch") && args.has("--batch-tokens")) {
    throw base::ConfigError("--batch and --batch-tokens say the same: give one of them");
  }
  if (args.has("--batch")) {
    q.job.global_batch = args.integer("--batch");
    if (q.job.global_batch < 1 || q.job.global_batch > max_sequences) {
      throw base::ConfigError(
          fmt::format("--batch {}: from 1 to {} sequences", q.job.global_batch, max_sequences));
    }
  }
  if (args.has("--batch-tokens")) {
    const double sequences = args.number("--batch-tokens") / static_cast<double>(q.job.seq_len);
    if (!(sequences >= 0.5) || sequences > max_sequences) {
      throw base::ConfigError(fmt::format("--batch-tokens {}: from 1 to {} sequences of {}",
                                          args.text("--batch-tokens"), max_sequences,
                                          q.job.seq_len));
    }
    q.job.global_batch = roundest(static_cast<int64_t>(sequences + 0.5));
    q.taken.push_back(fmt::format("a batch of {} sequences, {} tokens",
                                  obs::grouped(q.job.global_batch),
                                  amount_text(static_cast<double>(q.job.tokens()))));
  }
  if (args.has("--critical-batch")) {
    q.job.critical_batch_tokens = args.number("--critical-batch");
    if (!(q.job.critical_batch_tokens > 0)) {
      throw base::ConfigError(
          fmt::format("--critical-batch {}: tokens, above 0", args.text("--critical-batch")));
    }
  }
}

// The length of the run, and what it is paid by.
void take_run(const Args& args, PlanQuestion& q) {
  if (q.machine.price_per_hour > 0) q.dollars_per_gpu_hour = q.machine.price_per_hour;
  if (args.has("--price")) {
    const double price = args.number("--price");
    if (!(price >= 0) || price > 1e6) {
      throw base::ConfigError(fmt::format(
          "--price {}: dollars for one GPU and hour, from 0 to 1,000,000", args.text("--price")));
    }
    if (!args.has("--tokens")) {
      throw base::ConfigError("--price: the cost is that of a whole run; give its --tokens, too");
    }
    q.dollars_per_gpu_hour = price;
  }
  if (!args.has("--tokens")) return;
  const double tokens = args.number("--tokens");
  const auto step = static_cast<double>(q.job.tokens());
  if (!(tokens >= step) || tokens > max_run_tokens) {
    throw base::ConfigError(
        fmt::format("--tokens {}: tokens of the whole run, from the {} of one step to {:.0e}",
                    args.text("--tokens"), obs::grouped(q.job.tokens()), max_run_tokens));
  }
  q.run_tokens = tokens;
}

// What is priced stays inside the types that hold it.
void check_sizes(const plan::Job& job) {
  const auto real = [](int64_t value) { return static_cast<double>(value); };
  if (job.experts) {
    const auto& block = spec::typical_block(job.model);
    const double parameters =
        real(job.model.blocks()) * 3 * real(block.width) *
        (real(job.experts->count) * real(job.experts->ffn) + real(job.experts->shared_ffn));
    if (parameters > real(spec::max_parameters)) {
      throw base::ConfigError(fmt::format(
          "model '{}': {} experts of width {} in {} layers of width {} are {:.3g} parameters; at "
          "most {:.3g}",
          job.model.name, job.experts->count, job.experts->ffn, job.model.blocks(), block.width,
          parameters, real(spec::max_parameters)));
    }
  }
  const double of_sequence = spec::activation_elements(job.model, real(job.seq_len));
  const double activations = of_sequence * real(job.global_batch);
  if (activations > real(spec::max_step_activations)) {
    throw base::ConfigError(fmt::format(
        "a batch of {} sequences of {} tokens: with model '{}' that is {:.3g} activations in a "
        "step; at most {:.3g}: give a smaller --batch (at most {:.0f}) or --seq-len",
        job.global_batch, job.seq_len, job.model.name, activations,
        real(spec::max_step_activations),
        std::max(1.0, std::floor(real(spec::max_step_activations) / of_sequence))));
  }
}

}  // namespace

spec::Layout asked_layout(const PlanQuestion& q, const std::string& text) {
  spec::Layout l = spec::layout_from_text(text, q.gpus);
  const spec::Layout fresh;
  const auto take = [&](base::DType spec::Layout::*type) {
    if (l.*type == fresh.*type && l.precision != spec::Precision::fp32) l.*type = q.types.*type;
  };
  take(&spec::Layout::grad_dtype);
  take(&spec::Layout::master_dtype);
  take(&spec::Layout::reduce_dtype);
  if (l.deterministic) l.deterministic = q.space.deterministic;
  return l;
}

PlanQuestion plan_question(const Args& args) {
  PlanQuestion q;
  if (args.has("--gpus") && (args.integer("--gpus") < 1 || args.integer("--gpus") > max_gpus)) {
    throw base::ConfigError(fmt::format("--gpus {}: from 1 to {}", args.text("--gpus"), max_gpus));
  }
  take_source(args, q);
  take_seq_len(args, q);
  take_batch(args, q);
  if (args.has("--gpus")) q.gpus = args.integer("--gpus");
  std::string missing;
  const auto need = [&missing](bool is_there, const char* what) {
    if (!is_there) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", what);
  };
  need(q.gpus > 0, "--gpus N");
  need(q.job.global_batch > 0, "--batch SEQUENCES or --batch-tokens N");
  need(args.has("--machine"), "--machine NAME");
  if (!missing.empty()) {
    throw base::ConfigError(fmt::format("not enough to plan with: give {}. Machines are {}",
                                        missing,
                                        fmt::join(config::machine_names(machine_folders()), ", ")));
  }
  check_sizes(q.job);
  if (q.gpus > max_gpus) {
    throw base::ConfigError(fmt::format("{} GPUs: at most {}", q.gpus, max_gpus));
  }
  q.machine = config::machine_from_file(args.text("--machine"), machine_folders());
  take_run(args, q);
  take_stack(args, q);
  q.space = plan_limits(args, !q.stack.is_engine());
  // Nothing of it is in the engine: priced all the same.
  if (q.job.experts) q.space.unaudited = true;
  q.memory_fraction = args.number("--memory-fraction");
  if (!(q.memory_fraction > 0) || q.memory_fraction > 1) {
    throw base::ConfigError(
        fmt::format("--memory-fraction {}: above 0, at most 1", q.memory_fraction));
  }
  const bool is_fast = args.has("--determinism") ? args.text("--determinism") == "fast"
                                                 : !q.job.backend.deterministic;
  q.job.backend = plan::backend_for(q.machine, !is_fast);
  q.space.grad_dtype = q.types.grad_dtype;
  q.space.master_dtype = q.types.master_dtype;
  q.space.reduce_dtype = q.types.reduce_dtype;
  q.space.deterministic = !is_fast;
  if (args.has("--layout")) q.asked = asked_layout(q, args.text("--layout"));
  if (q.machine.processor.bf16_flops <= q.machine.processor.fp32_flops &&
      !args.has("--precision")) {
    q.space.precision = {spec::Precision::fp32};
    if (q.is_dtype_open && !args.has("--layout")) q.asked->precision = spec::Precision::fp32;
  }
  return q;
}

std::vector<Option> plan_question_options() {
  return {
      {.name = "config", .help = "TOML file of a run: its model, batch and layout"},
      {.name = "--model", .help = "A model of configs/models, a TOML file or a config.json"},
      {.name = "--machine", .help = "A machine of machines/, or a file like them"},
      {.name = "--gpus", .kind = Kind::integer, .help = "GPUs of the job"},
      {.name = "--batch", .kind = Kind::integer, .help = "Sequences of a step"},
      {.name = "--batch-tokens", .kind = Kind::number, .help = "Tokens of a step, in their place"},
      {.name = "--seq-len", .kind = Kind::integer, .help = "Tokens of a sequence"},
      {.name = "--tokens",
       .kind = Kind::number,
       .help = "Tokens of the whole run, as 2e12: says how long it takes and what it costs"},
      {.name = "--price",
       .kind = Kind::number,
       .help = "Dollars for one GPU and hour; else what the machine's file states"},
      {.name = "--critical-batch",
       .kind = Kind::number,
       .help = "Tokens of a step at which progress by token has fallen to half"},
      {.name = "--layout", .help = layouts_help},
      {.name = "--from-megatron", .help = "Flags of Megatron-LM, as one text"},
      {.name = "--from-torchtitan", .help = "TOML file of TorchTitan"},
      {.name = "--from-hf", .help = "config.json of Hugging Face, or its folder"},
      {.name = "--stack",
       .help = "Price as this program would run it: a name in stacks/, or a file like them; else "
               "Trireme"},
      {.name = "--grad-dtype",
       .help = "In which gradients are kept; else the configuration's, or f32",
       .choices = {"f32", "bf16"}},
      {.name = "--master-dtype",
       .help = "Master weights of bf16 layouts: f32, or u16 (the 16 bits that bf16 lacks of fp32); "
               "else the configuration's, or f32",
       .choices = {"f32", "u16"}},
      {.name = "--determinism",
       .help = "l1: sums in a fixed order, which costs time and memory; fast: in any; else the "
               "configuration's, or l1",
       .choices = {"l1", "fast"}},
      {.name = "--memory-fraction",
       .kind = Kind::number,
       .fallback = "0.95",
       .help = "Part of a GPU's memory that a layout may take"},
      {.name = "--tp", .help = "Only these degrees of tensor parallelism, as 1,2,8"},
      {.name = "--pp", .help = "Only these degrees of pipeline parallelism"},
      {.name = "--cp", .help = "Only these degrees of context parallelism; 1 unless given"},
      {.name = "--ep", .help = "Only these degrees of expert parallelism"},
      {.name = "--zero", .help = "Only these stages of ZeRO"},
      {.name = "--shard", .help = "Only so many ranks that share a copy of the state"},
      {.name = "--chunks", .help = "Only so many stages of a rank"},
      {.name = "--micro-batch", .help = "Only these sizes, in sequences"},
      {.name = "--schedule", .help = "Only these schedules, by name"},
      {.name = "--recompute", .help = "Only these: none, selective, full"},
      {.name = "--precision", .help = "fp32, bf16, fp8, fp4; bf16 unless given"},
      {.name = "--unaudited",
       .kind = Kind::flag,
       .help = "Also layouts that the engine cannot run yet (cp, ep, fp8)"},
  };
}

}  // namespace trireme::cli
