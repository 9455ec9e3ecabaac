// SPDX-License-Identifier: Apache-2.0
#include "cli/run/first_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <string_view>

#include "base/error.h"
#include "cli/verbs.h"
#include "config/files/model_file.h"
#include "obs/terminal/number_text.h"
#include "plan/sizes/model_of_size.h"
#include "train/setup/fit.h"

namespace trireme::cli {
namespace {

// On a CPU steps are small, so that there are many in a minute.
constexpr int64_t gpu_seq_len = 2048, cpu_seq_len = 256;
constexpr int64_t gpu_micro_batch = 16, cpu_micro_batch = 4;
constexpr int64_t cpu_steps = 1000;
constexpr double cpu_max_parameters = 10e6;
constexpr double max_epochs = 4;  // more repetition of text stops helping
constexpr double held_out = 0.05;

struct Sized {
  spec::ModelDims dims;
  std::string name;   // of a file; empty: the model is made
  int64_t vocab = 0;  // that replaces the one of a file; 0: none
  int64_t parameters = 0;
};

// Returns a vocabulary for the tokens whose products are fast.
int64_t vocabulary_for(const FirstJob& job) {
  constexpr int64_t grain = 64;
  return job.has_bytes ? job.vocab : (job.vocab + grain - 1) / grain * grain;
}

Sized sized(spec::ModelDims dims, const std::string& name, const FirstJob& job) {
  Sized result{.name = name};
  if (name.empty() || dims.vocab < job.vocab || (job.has_bytes && dims.vocab != job.vocab)) {
    dims.vocab = vocabulary_for(job);
    if (!name.empty()) result.vocab = dims.vocab;
  }
  result.parameters = spec::parameter_count(spec::make_model(dims));
  result.dims = std::move(dims);
  return result;
}

// Returns a model of about so many parameters with the vocabulary of the data, which differs from
// that of the shapes that exist.
Sized made(double parameters, const FirstJob& job) {
  constexpr int tries = 4;
  Sized result;
  double asked = parameters;
  for (int i = 0; i < tries; ++i) {
    asked = std::clamp(asked, plan::min_model_parameters, plan::max_model_parameters);
    result = sized(plan::model_of_size(asked, gpu_seq_len), "", job);
    asked += parameters - static_cast<double>(result.parameters);
  }
  result.dims.name =
      fmt::format("llama-{}m", std::llround(static_cast<double>(result.parameters) / 1e6));
  return result;
}

// Returns the length of sequences of which the held-out part of the data has some.
int64_t seq_len_for(const FirstJob& job, int64_t max_seq) {
  constexpr int64_t min_len = 16, min_held_out = 4;
  int64_t len = std::min(max_seq, job.gpus > 0 ? gpu_seq_len : cpu_seq_len);
  const double part = held_out * static_cast<double>(job.tokens);
  while (len > min_len && static_cast<double>(len * min_held_out) > part) len /= 2;
  if (part < static_cast<double>(2 * len)) {
    throw base::ConfigError(fmt::format(
        "{}: {} tokens are too few to train on some and hold out {:g} % of them; {} or more are "
        "needed",
        job.data, job.tokens, 100 * held_out,
        static_cast<int64_t>(std::ceil(static_cast<double>(2 * min_len) / held_out))));
  }
  return len;
}

// Peak rates fall with the size: GPT-3's table 2.1 (Brown et al. 2020, arXiv:2005.14165) has 6e-4
// for 125 million parameters and 1e-4 for 13 billion.
double rate_for(double parameters) {
  constexpr double known_size = 125e6, known_rate = 6e-4, exponent = 0.35;
  const double rate = known_rate * std::pow(known_size / parameters, exponent);
  constexpr double highest = 3e-3;
  // Two digits, as the nearest number that a decimal has.
  const std::string digits = fmt::format("{:.1e}", std::min(highest, rate));
  double rounded = 0;
  (void)std::from_chars(digits.data(), digits.data() + digits.size(), rounded);
  return rounded;
}

// Returns the predicted bytes of a rank, with its copy of the state for checkpoints if that is in
// the same memory.
int64_t bytes_of(const config::Config& c, const FirstJob& job) {
  const bool on_gpu = job.gpus > 0;
  const config::Config solved = config::settle_dtype(
      config::solved(c, static_cast<int>(std::max<int64_t>(1, job.gpus))), on_gpu);
  const spec::ModelSpec model = spec::make_model(solved.dims);
  const spec::Backend backend = on_gpu ? spec::cuda_backend(true) : spec::cpu_backend();
  const spec::Plan plan = train::make_plan(solved, model, backend);
  const int64_t bytes = plan.predicted.largest().total();
  if (on_gpu) return bytes + train::cuda_library_bytes;
  const train::FitJob fit{.model = model,
                          .backend = backend,
                          .work = {.seq_len = solved.training.seq_len},
                          .layout = plan.layout,
                          .plan = plan};
  return bytes + train::checkpoint_bytes(solved, fit, 0);
}

// Sets micro-batch and recomputation: the largest micro-batch that fits, recomputing as little as
// possible. Micro-batches of few tokens are slow, so recomputation comes before them. Returns the
// bytes of a rank; 0 if nothing fits.
int64_t fit_memory(const FirstJob& job, config::Config& c) {
  const int64_t largest = job.gpus > 0 ? gpu_micro_batch : cpu_micro_batch;
  constexpr int64_t good_tokens = 4096;
  constexpr std::array<const char*, 3> modes = {"none", "selective", "full"};
  for (const bool accepts_few : {false, true}) {
    for (const char* mode : modes) {
      for (int64_t micro = largest; micro >= 1; micro /= 2) {
        if (!accepts_few && job.gpus > 0 && micro * c.training.seq_len < good_tokens) break;
        c.activation_checkpoint.mode = mode;
        c.training.local_batch_size = micro;
        c.training.global_batch_size = -1;
        const int64_t bytes = bytes_of(c, job);
        if (bytes <= job.memory_bytes) return bytes;
      }
    }
  }
  return 0;
}

void set_model(const Sized& model, const FirstJob& job, config::Config& c) {
  c.model.name = model.name.empty() ? model.dims.name : model.name;
  c.model.vocab_size = model.vocab;
  c.dims = model.dims;
  c.training.seq_len = seq_len_for(job, model.dims.max_seq);
}

// Returns the model and the memory of a rank. Without an asked size it is that for which the data
// is compute-optimal, or the largest that fits.
std::pair<Sized, int64_t> choose_model(const FirstJob& job, config::Config& c) {
  const bool is_asked = !job.model.empty() || job.parameters > 0;
  double parameters = job.parameters > 0
                          ? job.parameters
                          : static_cast<double>(job.tokens) / plan::compute_optimal_ratio;
  if (!is_asked && job.gpus == 0) parameters = std::min(parameters, cpu_max_parameters);
  for (;;) {
    Sized model;
    if (!job.model.empty()) {
      model = sized(config::model_from_file(job.model, model_folders()), job.model, job);
    } else if (!is_asked && parameters < plan::min_model_parameters) {
      constexpr const char* smallest = "kjv-llama";
      model = sized(config::model_from_file(smallest, model_folders()), smallest, job);
    } else {
      model = made(parameters, job);
    }
    set_model(model, job, c);
    const int64_t bytes = fit_memory(job, c);
    if (bytes > 0) return {model, bytes};
    const bool is_smallest = parameters < plan::min_model_parameters;
    if (is_asked || is_smallest) {
      const int64_t least = bytes_of(c, job);
      throw base::ConfigError(fmt::format(
          "{} with {} parameters does not fit {}: a rank needs {} with the smallest "
          "micro-batch and full recomputation, and has {}; choose a smaller model, or more "
          "GPUs (trireme plan)",
          c.model.name, obs::grouped(model.parameters), job.hardware, obs::bytes_text(least),
          obs::bytes_text(job.memory_bytes)));
    }
    parameters /= 2;
  }
}

// Sets batch, steps and learning rate for a model.
void set_run(const FirstJob& job, const Sized& model, config::Config& c) {
  config::Training& t = c.training;
  const auto size = static_cast<double>(model.parameters);
  const double run_tokens =
      std::min(plan::compute_optimal_ratio * size, max_epochs * static_cast<double>(job.tokens));
  const int64_t once = t.local_batch_size * std::max<int64_t>(1, job.gpus);
  int64_t times = 1;
  if (job.gpus > 0) {
    const double batch = plan::batch_tokens_for(size, run_tokens);
    times = std::max<int64_t>(1, std::llround(batch / static_cast<double>(once * t.seq_len)));
  }
  t.global_batch_size = once * times;
  const double step_tokens = static_cast<double>(t.global_batch_size * t.seq_len);
  t.steps = std::max<int64_t>(20, std::llround(run_tokens / step_tokens));
  if (job.gpus == 0) t.steps = std::min(t.steps, cpu_steps);
  constexpr int64_t max_warmup = 2000, warmup_part = 20;
  c.lr_scheduler.warmup_steps = std::clamp<int64_t>(t.steps / warmup_part, 1, max_warmup);
  c.optimizer.lr = rate_for(size);
  c.validation.enable = true;
  c.validation.split = held_out;
  c.validation.freq = std::max<int64_t>(1, t.steps / 10);
  c.metrics.log_freq = std::clamp<int64_t>(t.steps / 100, 1, 10);
  if (job.gpus > 0) c.parallelism.data_parallel_shard_degree = -1;
}

std::map<std::string, std::string> notes_of(const FirstJob& job, const Sized& model,
                                            const config::Config& c) {
  const config::Training& t = c.training;
  const double run_tokens =
      static_cast<double>(t.steps) * static_cast<double>(t.global_batch_size * t.seq_len);
  std::map<std::string, std::string> notes = {
      {"job.dump_folder", "all files of the run"},
      {"model.name",
       fmt::format("{} parameters; models: docs/configuration.md", obs::grouped(model.parameters))},
      {"optimizer.lr", "by the size of the model; try twice and half of it"},
      {"optimizer.weight_decay", ""},
      {"lr_scheduler.warmup_steps", ""},
      {"lr_scheduler.decay_type", ""},
      {"lr_scheduler.min_lr_factor", "of lr, at the last step"},
      {"training.dataset_path", job.tokens_text},
      {"training.seq_len", "tokens"},
      {"training.local_batch_size", "sequences that a rank computes at once; fits its memory"},
      {"training.global_batch_size", fmt::format("sequences of a step: {} tokens",
                                                 obs::grouped(t.global_batch_size * t.seq_len))},
      {"training.steps", fmt::format("{:.2g} epochs of the data, {:.2g} tokens a parameter",
                                     run_tokens / static_cast<double>(job.tokens),
                                     run_tokens / static_cast<double>(model.parameters))},
      {"activation_checkpoint.mode", "none, selective or full: less memory, more time"},
      {"validation.enable", ""},
      {"validation.split", "of the data is held out"},
      {"validation.freq", "steps"},
      {"metrics.log_freq", "steps between lines of the log"}};
  if (model.vocab > 0) {
    notes["model.vocab_size"] = fmt::format("of the data, instead of the model's own");
  }
  if (job.gpus > 0) notes["parallelism.data_parallel_shard_degree"] = "all ranks (FSDP)";
  return notes;
}

}  // namespace

FirstConfig first_config(const FirstJob& job) {
  FirstConfig first;
  config::Config& c = first.config;
  c.training.dataset_path = job.data;
  std::string stem = std::filesystem::path(job.data).filename().replace_extension().string();
  constexpr size_t max_stem = 100;
  if (stem.empty() || stem.size() > max_stem) stem = "first";
  // Not "runs/book": that is the prefix of the data if `data build` wrote it there.
  c.job.name = stem + "-run";
  c.job.dump_folder = "runs/" + c.job.name;
  c.lr_scheduler.decay_type = "cosine";
  c.validation.enable = true;
  auto [model, bytes] = choose_model(job, c);
  first.parameters = model.parameters;
  first.bytes = bytes;
  set_run(job, model, c);
  first.written.notes = notes_of(job, model, c);
  if (model.name.empty()) first.written.dims = model.dims;
  return first;
}

}  // namespace trireme::cli
