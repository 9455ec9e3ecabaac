// SPDX-License-Identifier: Apache-2.0
// trireme init: a first configuration for the user's data and machine.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/text/json.h"
#include "cli/run/first_config.h"
#include "cli/shell/new_file.h"
#include "cli/verbs.h"
#include "config/files/machine_file.h"
#include "data/files/token_data.h"
#include "data/inspect.h"
#include "data/tokenizer_beside.h"
#include "device/accelerator.h"
#include "device/host_memory.h"
#include "obs/terminal/number_text.h"
#include "text/tokenizer.h"

namespace trireme::cli {
namespace {

// A part of the memory stays free for what a prediction does not contain.
constexpr double usable_memory = 0.92, usable_host_memory = 0.7;

// Sets tokens and vocabulary: of the tokenizer beside the data, of bytes, or of all tokens.
void read_data(const std::string& path, FirstJob& job) {
  const std::unique_ptr<data::TokenData> tokens = data::open_tokens(path, {});
  job.data = path;
  job.tokens = tokens->tokens();
  job.has_bytes = tokens->format() == data::TokenFormat::text;
  const auto folder = data::tokenizer_beside(path);
  const auto manifest = data::manifest_beside(path);
  if (manifest && manifest->contains("options")) {
    const base::Json& options = manifest->at("options");
    job.has_bytes = options.is_object() && options.value("tokenizer", "") == "bytes";
  }
  const char* source = "largest token";
  if (folder) {
    job.vocab = text::open_tokenizer(*folder)->vocab_size();
    source = "tokenizer beside it";
  } else {
    job.vocab = int64_t{data::inspect(*tokens, {}).token_max} + 1;
    constexpr int64_t bytes = 256;
    if (job.has_bytes && job.vocab <= bytes) {
      job.vocab = bytes;
      source = "bytes";
    }
  }
  job.tokens_text = fmt::format("{} tokens, a vocabulary of {} ({})", obs::grouped(job.tokens),
                                obs::grouped(job.vocab), source);
}

int64_t part_of(double bytes, double part) { return static_cast<int64_t>(bytes * part); }

// Sets the GPUs of --gpus: of the machine file, or of this machine.
void read_machine(const Args& args, FirstJob& job) {
  std::optional<int64_t> asked;
  if (args.has("--gpus")) asked = args.integer("--gpus");
  constexpr int64_t max_gpus = 1 << 16;
  if (asked && (*asked < 0 || *asked > max_gpus)) {
    throw base::ConfigError(
        fmt::format("--gpus {}: from 0 (the CPU) to {} are allowed", *asked, max_gpus));
  }
  if (args.has("--machine")) {
    const spec::Machine machine =
        config::machine_from_file(args.text("--machine"), machine_folders());
    job.gpus = asked.value_or(1);
    if (job.gpus == 0) throw base::ConfigError("--gpus 0 is the CPU; leave out --machine");
    job.memory_bytes = part_of(machine.processor.memory_bytes, usable_memory);
    job.hardware = fmt::format("{} x {}", job.gpus, machine.name);
    return;
  }
  const device::GpuStatus status = device::gpu_status();
  const auto usable =
      std::ranges::count_if(status.gpus, [](const auto& gpu) { return gpu.is_usable; });
  job.gpus = asked.value_or(usable);
  if (job.gpus > 0 && usable == 0) {
    throw base::ConfigError(fmt::format(
        "--gpus {}: this machine has no usable GPU ({}); name the machine that has them with "
        "--machine, for example --machine h100",
        job.gpus, status.problem));
  }
  if (job.gpus == 0) {
    const int64_t free = device::host_memory_available();
    job.memory_bytes = part_of(static_cast<double>(free), usable_host_memory);
    job.hardware = "the CPU of this machine";
    return;
  }
  const device::GpuInfo* smallest = nullptr;
  for (const device::GpuInfo& gpu : status.gpus) {
    if (!gpu.is_usable) continue;
    if (smallest == nullptr || gpu.total_bytes < smallest->total_bytes) smallest = &gpu;
  }
  job.memory_bytes = part_of(static_cast<double>(smallest->total_bytes), usable_memory);
  job.hardware = fmt::format("{} x {}", job.gpus, smallest->name);
}

std::string start_command(const FirstJob& job, const std::string& file) {
  return job.gpus > 1 ? fmt::format("trireme launch -n {} {}", job.gpus, file)
                      : "trireme train " + file;
}

int run_init(const Args& args) {
  const NewFile file{.path = args.text("--output"), .may_replace = args.flag("--overwrite")};
  check_new_file(file);
  FirstJob job{.model = args.text("--model")};
  if (args.has("--size")) {
    job.parameters = args.number("--size");
    if (!job.model.empty()) {
      throw base::ConfigError("--model and --size each name the model: give one of them");
    }
    if (!(job.parameters >= 5e6 && job.parameters <= 2e12)) {
      throw base::ConfigError(
          fmt::format("--size {}: from 5M to 2T parameters are allowed", args.text("--size")));
    }
  }
  read_data(args.text("--data"), job);
  read_machine(args, job);
  FirstConfig first = first_config(job);
  const std::string start = start_command(job, file.path.string());
  first.written.comment = fmt::format(
      "Written by trireme init for {}; a rank needs {} (predicted).\nStart it with: {}\n"
      "Other keys: trireme train --keys",
      job.hardware, obs::bytes_text(first.bytes), start);
  const std::string text = config::toml_text(first.config, first.written);
  // What `train` would refuse is not written.
  (void)config::load(config::ConfigText{.name = file.path.string(), .folder = ".", .text = text},
                     {.model_folders = model_folders(),
                      .world = static_cast<int>(std::max<int64_t>(1, job.gpus))});
  write_new_file(file, text);
  if (args.wants_json()) {
    fmt::print("{}\n", base::Json{{"ok", true},
                                  {"file", file.path.string()},
                                  {"model", first.config.model.name},
                                  {"parameters", first.parameters},
                                  {"predicted_bytes", first.bytes},
                                  {"hardware", job.hardware},
                                  {"start", start},
                                  {"toml", text}}
                           .dump());
    return 0;
  }
  fmt::print("written   {}: {} with {} parameters on {}, {} a rank (predicted)\n",
             file.path.string(), first.config.model.name, obs::grouped(first.parameters),
             job.hardware, obs::bytes_text(first.bytes));
  fmt::print("data      {}\n", job.tokens_text);
  fmt::print("start     {}\n", start);
  return 0;
}

}  // namespace

Verb init_verb() {
  return {
      .name = "init",
      .summary = "Write a first configuration for your data and your GPUs",
      .details =
          "Reads the data, chooses a model, sequence, batch, steps and learning rate by rules of\n"
          "thumb (20 tokens a parameter, at most 4 epochs), and a micro-batch and recomputation\n"
          "with which the predicted memory fits. The file is short and every key has a comment;\n"
          "`trireme train` or `trireme launch` takes it as it is. Nothing is asked, and an "
          "existing\n"
          "file is not replaced.\n\nExamples:\n"
          "  trireme init --data book.txt\n"
          "  trireme init --data runs/book --output small.toml\n"
          "  trireme init --data book.txt --size 50M --gpus 8 --machine h100 --output large.toml",
      .options = {{.name = "--data",
                   .help = "Data set to train on: tokens or text",
                   .is_required = true},
                  {.name = "--model",
                   .help = "Model: a name in configs/models, a TOML file, or a Hugging Face "
                           "config.json or its folder; without it and --size as large as data and "
                           "memory allow"},
                  {.name = "--size",
                   .kind = Kind::number,
                   .help = "Parameters of a model to make, as 100M or 1.5B"},
                  {.name = "--gpus",
                   .kind = Kind::integer,
                   .help = "Number of GPUs, 0 for the CPU; without it those of this machine"},
                  {.name = "--machine",
                   .help = "Machine that has the GPUs, as h100, if it is not this one"},
                  {.name = "--output", .fallback = "run.toml", .help = "File to write"},
                  {.name = "--overwrite",
                   .kind = Kind::flag,
                   .help = "Replace the file if it already exists"}},
      .run = run_init};
}

}  // namespace trireme::cli
