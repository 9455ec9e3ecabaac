// SPDX-License-Identifier: Apache-2.0
// trireme generate: continues texts.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "base/text/count_text.h"
#include "base/text/json.h"
#include "cli/ckpt/weights_place.h"
#include "cli/infer/continuations.h"
#include "cli/infer/json_lines_file.h"
#include "cli/infer/prompts.h"
#include "cli/shell/device_options.h"
#include "cli/shell/progress.h"
#include "cli/verbs.h"
#include "obs/terminal/number_text.h"
#include "train/generate/generator.h"
#include "train/generate/loaded_decoder.h"
#include "train/generate/text_codec.h"

namespace trireme::cli {
namespace {

constexpr int64_t default_batch = 8;

// What a call asks for, checked before weights are read.
struct Job {
  std::vector<Prompt> prompts;
  train::GenerateOptions options;
  int64_t samples = 1;
  int64_t batch = 1;
  std::vector<std::string> stops;
};

int64_t at_least(const Args& args, const char* name, int64_t min) {
  const int64_t value = args.integer(name);
  if (value < min) throw base::ConfigError(fmt::format("{} {}: {} or above", name, value, min));
  return value;
}

Job job_of(const Args& args) {
  Job job{.prompts = read_prompts(args),
          .options = {.max_tokens = at_least(args, "--tokens", 0),
                      .sampling = {.temperature = args.number("--temperature"),
                                   .top_k = args.integer("--top-k"),
                                   .top_p = args.number("--top-p"),
                                   .seed = static_cast<uint64_t>(args.integer("--seed"))},
                      .eos = {}},
          .samples = at_least(args, "--samples", 1),
          .stops = args.list("--stop")};
  train::check(job.options.sampling);
  if (std::ranges::any_of(job.stops, [](const std::string& stop) { return stop.empty(); })) {
    throw base::ConfigError("--stop '': a stop string has at least one character");
  }
  if (job.prompts.empty()) job.prompts.push_back({.text = {}, .ids = {}, .origin = ""});
  const auto requests = static_cast<int64_t>(job.prompts.size()) * job.samples;
  job.batch = args.has("--batch") ? at_least(args, "--batch", 1) : default_batch;
  job.batch = std::min(job.batch, requests);
  return job;
}

// Returns null if the model's tokens have no known text and the call needs none.
std::unique_ptr<train::TextCodec> codec_of(const Args& args, const FoundWeights& weights,
                                           const Job& job) {
  const std::filesystem::path tokenizer = tokenizer_of(args, weights);
  const bool needs_text =
      !job.stops.empty() ||
      std::ranges::any_of(job.prompts, [](const Prompt& p) { return !p.ids.has_value(); });
  if (tokenizer.empty() && !needs_text && weights.dims().vocab > 257) return nullptr;
  return std::make_unique<train::TextCodec>(tokenizer, weights.dims().vocab);
}

std::vector<int32_t> tokens_of(const Prompt& prompt, const train::TextCodec* codec, int64_t vocab) {
  std::vector<int32_t> tokens;
  if (prompt.ids) {
    tokens = *prompt.ids;
  } else if (prompt.origin.empty() && codec->is_bytes()) {
    tokens = codec->encode("\n");
  } else {
    tokens = codec->encode(prompt.text);
    if (tokens.empty() && codec->start()) tokens = {*codec->start()};
  }
  const std::string origin = prompt.origin.empty() ? "no --prompt" : prompt.origin;
  if (tokens.empty()) {
    throw base::ConfigError(
        fmt::format("{}: the prompt is empty: at least one token is needed", origin));
  }
  for (const int32_t token : tokens) {
    if (token < 0 || token >= vocab) {
      throw base::ConfigError(
          fmt::format("{}: token {} is not below the vocabulary of {}", origin, token, vocab));
    }
  }
  return tokens;
}

std::vector<train::GenerateRequest> requests_of(const Job& job, const train::TextCodec* codec,
                                                int64_t vocab) {
  std::vector<train::GenerateRequest> requests;
  for (const Prompt& prompt : job.prompts) {
    const std::vector<int32_t> tokens = tokens_of(prompt, codec, vocab);
    for (int64_t sample = 0; sample < job.samples; ++sample) {
      requests.push_back({.prompt = tokens, .sample = static_cast<uint64_t>(sample)});
    }
  }
  return requests;
}

void print_bytes(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

// Prints continuations as they arrive; with several, each under a line with its number.
ContinuationPrinter terminal_printer(const Job& job) {
  const size_t count = job.prompts.size() * static_cast<size_t>(job.samples);
  return {.begin =
              [&job, count](size_t request) {
                const Prompt& prompt = job.prompts[request / static_cast<size_t>(job.samples)];
                if (count > 1) fmt::print("=== {} of {} ===\n", request + 1, count);
                print_bytes(prompt.text);
              },
          .text = print_bytes,
          .end = [] { print_bytes("\n"); }};
}

double rate(int64_t tokens, double seconds) {
  return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
}

base::Json json_of(const Prompt& prompt, const train::GenerateRequest& request,
                   const Continuation& continuation, bool has_text) {
  base::Json json;
  if (!prompt.ids) json["prompt"] = prompt.text;
  json["prompt_tokens"] = request.prompt;
  json["sample"] = request.sample;
  if (has_text) json["text"] = continuation.text;
  json["tokens"] = continuation.tokens;
  json["end"] = train::name_of(continuation.end);
  return json;
}

base::Json json_of(const train::GenerateSpeed& speed) {
  return {{"prompt_tokens", speed.prompt_tokens},
          {"prefill_seconds", speed.prefill_seconds},
          {"prefill_tokens_per_second", rate(speed.prompt_tokens, speed.prefill_seconds)},
          {"tokens", speed.tokens},
          {"decode_seconds", speed.step_seconds},
          {"decode_tokens_per_second", rate(speed.step_tokens, speed.step_seconds)},
          {"full_contexts", speed.restarts}};
}

std::string text_of(const base::Json& json) {
  return json.dump(-1, ' ', false, base::Json::error_handler_t::replace);
}

int run_generate(const Args& args) {
  Job job = job_of(args);
  std::optional<JsonLinesFile> output;
  if (args.has("--output")) output.emplace(args.text("--output"));
  const std::unique_ptr<FoundWeights> weights = find_weights(args.text("from"));
  const std::unique_ptr<train::TextCodec> codec = codec_of(args, *weights, job);
  const auto requests = requests_of(job, codec.get(), weights->dims().vocab);
  if (codec && !args.flag("--ignore-eos")) job.options.eos = codec->eos();

  train::LoadedDecoder model(*weights, {.sequences = job.batch,
                                        .seq_len = args.integer("--seq"),
                                        .dtype = args.text("--dtype"),
                                        .system = system_of(args)});
  base::log_info("{}", weights->description());
  const bool is_quiet = args.wants_json() || output.has_value();
  // A call with token ids prints token ids.
  const bool prints_ids =
      !codec || std::ranges::all_of(job.prompts, [](const Prompt& p) { return p.ids.has_value(); });
  Continuations continuations(
      requests.size(), codec.get(), prints_ids, job.stops,
      is_quiet ? ContinuationPrinter{[](size_t) {}, [](std::string_view) {}, [] {}}
               : terminal_printer(job));
  std::optional<Progress> progress;
  if (is_quiet) {
    progress.emplace("generate", "tokens",
                     static_cast<int64_t>(requests.size()) * job.options.max_tokens);
  }
  int64_t tokens = 0, ended = 0;
  const train::GenerateSpeed speed = train::generate(
      model.decoder(), requests, job.options,
      {.on_token =
           [&](size_t request, int32_t token) {
             const bool goes_on = continuations.add(request, token);
             if (progress) {
               progress->update(++tokens, fmt::format("{} of {} ended", ended, requests.size()));
             }
             return goes_on;
           },
       .on_end =
           [&](size_t request, train::EndReason reason) {
             ++ended;
             continuations.end(request, reason);
           }});
  if (progress) progress->finish();
  base::log_info("{} at {} tokens/s, then {} at {} tokens/s",
                 base::count_text(speed.prompt_tokens, "prompt token"),
                 obs::grouped(rate(speed.prompt_tokens, speed.prefill_seconds), 0),
                 base::count_text(speed.tokens, "token"),
                 obs::grouped(rate(speed.step_tokens, speed.step_seconds), 0));
  if (speed.restarts > 0) {
    base::log_info(
        "the context of {} tokens was full {}; each time the text continued from its last {}",
        model.decoder().plan().capacity, base::count_text(speed.restarts, "time"),
        std::max<int64_t>(1, model.decoder().plan().capacity / 2));
  }

  base::Json results = base::Json::array();
  for (size_t i = 0; i < requests.size(); ++i) {
    results.push_back(json_of(job.prompts[i / static_cast<size_t>(job.samples)], requests[i],
                              continuations.results()[i], codec != nullptr));
    if (output) output->add(text_of(results.back()));
  }
  if (output) output->commit();
  if (!args.wants_json()) return 0;
  base::Json out = {
      {"ok", true}, {"weights", weights->json()}, {"results", results}, {"speed", json_of(speed)}};
  if (requests.size() == 1) {
    out["tokens"] = results[0].at("tokens");
    if (codec) out["text"] = results[0].at("text");
  }
  fmt::print("{}\n", text_of(out));
  return 0;
}

}  // namespace

Verb generate_verb() {
  Verb verb = {
      .name = "generate",
      .summary = "Continue texts with trained weights",
      .details =
          "For a run's folder, the final weights are used, or if there are none the newest intact\n"
          "checkpoint. Text goes through the tokenizer that lies with the weights; a model whose\n"
          "tokens are bytes needs none.\n\n"
          "Several prompts are continued at once, --batch of them. The tokens of a prompt depend "
          "on\n"
          "the prompt and --seed only, not on the other prompts. A sequence ends after --tokens\n"
          "tokens, before a --stop text, or at the model's end-of-text token. Of a prompt longer\n"
          "than --seq its last --seq tokens are read; when a context becomes full, generation\n"
          "continues with its last half.\n\nExamples:\n"
          "  trireme generate runs/kjv --prompt 'In the beginning'\n"
          "  trireme generate runs/kjv --prompt 'And he' --prompt 'But' --stop '.' --top-p 0.9\n"
          "  trireme generate runs/kjv --prompts prompts.txt --batch 16 --output out.jsonl\n"
          "  trireme generate DIR --prompt-ids 464,3290 --tokens 20 --temperature 0 --json",
      .options = {weights_argument(true)},
      .run = run_generate};
  for (const Option& option : prompt_options()) verb.options.push_back(option);
  const std::vector<Option> own = {
      tokenizer_option(),
      {.name = "--tokens",
       .kind = Kind::integer,
       .fallback = "200",
       .help = "Number of tokens to sample for each prompt"},
      {.name = "--stop",
       .kind = Kind::texts,
       .help = "Text at which a continuation ends; it is not printed. May be given several times"},
      {.name = "--ignore-eos",
       .kind = Kind::flag,
       .help = "Continue after the model's end-of-text token"},
      {.name = "--samples",
       .kind = Kind::integer,
       .fallback = "1",
       .help = "Number of continuations of each prompt"},
      {.name = "--temperature",
       .kind = Kind::number,
       .fallback = "0.8",
       .help = "Sampling temperature; 0 takes the most likely token"},
      {.name = "--top-k",
       .kind = Kind::integer,
       .fallback = "0",
       .help = "Sample from the k most likely tokens only; 0: from all"},
      {.name = "--top-p",
       .kind = Kind::number,
       .fallback = "1",
       .help = "Sample from the most likely tokens whose probabilities sum to this "
               "(nucleus sampling)"},
      {.name = "--seed", .kind = Kind::integer, .fallback = "0", .help = "Seed of the sampling"},
      {.name = "--batch",
       .kind = Kind::integer,
       .help = "Sequences that are continued at once; default: 8, or fewer if there are fewer"},
      {.name = "--output", .help = "Write one JSON object per continuation to this file"},
      {.name = "--seq",
       .kind = Kind::integer,
       .fallback = "0",
       .help = "Longest context in tokens; 0: the model's max_seq"},
      {.name = "--dtype",
       .fallback = "fp32",
       .help = "Precision of the weights",
       .choices = {"fp32", "bf16"}}};
  for (const Option& option : own) verb.options.push_back(option);
  for (const Option& option : device_options()) verb.options.push_back(option);
  return verb;
}

}  // namespace trireme::cli
