// SPDX-License-Identifier: Apache-2.0
// trireme generate: continues a text.
#include <charconv>
#include <cstdio>
#include <memory>
#include <sstream>

#include "base/error.h"
#include "base/log.h"
#include "base/text/json.h"
#include "cli/ckpt/weights_place.h"
#include "cli/shell/device_options.h"
#include "cli/verbs.h"
#include "train/weights/inference.h"

namespace trireme::cli {
namespace {

constexpr int64_t byte_vocab = 257;  // 256 bytes, and an end-of-document token

std::vector<int32_t> prompt_of(const Args& args, int64_t vocab) {
  std::vector<int32_t> tokens;
  if (args.has("--prompt-ids")) {
    std::stringstream list(args.text("--prompt-ids"));
    for (std::string id; std::getline(list, id, ',');) {
      int32_t token = 0;
      const auto [end, error] = std::from_chars(id.data(), id.data() + id.size(), token);
      if (error != std::errc() || end != id.data() + id.size()) {
        throw base::ConfigError(
            fmt::format("--prompt-ids: '{}' is not a token id; give ids like 17,4,99", id));
      }
      tokens.push_back(token);
      if (token < 0 || token >= vocab) {
        throw base::ConfigError(
            fmt::format("--prompt-ids: {} is not below the vocabulary of {}", id, vocab));
      }
    }
    return tokens;
  }
  if (vocab > byte_vocab) {
    throw base::ConfigError(fmt::format(
        "the model has a vocabulary of {}: its tokens are not bytes, so give --prompt-ids", vocab));
  }
  for (const char c : args.text("--prompt")) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

int run_generate(const Args& args) {
  const std::unique_ptr<FoundWeights> weights = find_weights(args.text("from"));
  train::Inference model(
      *weights,
      {.seq_len = args.integer("--seq"), .dtype = args.text("--dtype"), .system = system_of(args)});
  base::log_info("{}", weights->description());
  const std::vector<int32_t> prompt = prompt_of(args, model.dims().vocab);
  const train::SampleOptions options{.temperature = args.number("--temperature"),
                                     .top_k = args.integer("--top-k"),
                                     .top_p = args.number("--top-p"),
                                     .seed = static_cast<uint64_t>(args.integer("--seed"))};
  train::check(options);  // before anything is printed
  if (args.integer("--tokens") < 0) {
    throw base::ConfigError(fmt::format("--tokens {}: 0 or above", args.integer("--tokens")));
  }
  const bool is_text = !args.has("--prompt-ids");
  const bool json = args.wants_json();
  if (!json && is_text) std::fputs(args.text("--prompt").c_str(), stdout);
  std::string text;
  const std::vector<int32_t> tokens =
      model.generate(prompt, args.integer("--tokens"), options, [&](int32_t token) {
        if (is_text && token < 256) text.push_back(static_cast<char>(token));
        if (json) return;
        is_text ? std::fputc(token < 256 ? token : '\n', stdout) : std::printf("%d ", token);
        std::fflush(stdout);
      });
  if (!json) {
    std::fputc('\n', stdout);
    return 0;
  }
  base::Json out = {{"ok", true}, {"tokens", tokens}, {"weights", weights->json()}};
  if (is_text) out["text"] = text;
  fmt::print("{}\n", out.dump(-1, ' ', false, base::Json::error_handler_t::replace));
  return 0;
}

}  // namespace

Verb generate_verb() {
  Verb verb = {
      .name = "generate",
      .summary = "Continue a text with trained weights",
      .details =
          "For a run's folder, the final weights are used, or if there are none the newest intact\n"
          "checkpoint.\n\nExamples:\n"
          "  trireme generate runs/kjv --prompt 'In the beginning'\n"
          "  trireme generate DIR --prompt-ids 464,3290 --tokens 20 --temperature 0 --json",
      .options = {weights_argument(true),
                  {.name = "--prompt",
                   .fallback = "\n",
                   .help = "Text to continue, for models whose tokens are bytes"},
                  {.name = "--prompt-ids",
                   .help = "Token ids to continue, as 17,4,99, for all other models"},
                  {.name = "--tokens",
                   .kind = Kind::integer,
                   .fallback = "200",
                   .help = "Number of tokens to sample"},
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
                  {.name = "--seed",
                   .kind = Kind::integer,
                   .fallback = "0",
                   .help = "Seed of the sampling"},
                  {.name = "--seq",
                   .kind = Kind::integer,
                   .fallback = "0",
                   .help = "Longest context in tokens; 0: the model's max_seq"},
                  {.name = "--dtype",
                   .fallback = "fp32",
                   .help = "Precision of the weights",
                   .choices = {"fp32", "bf16"}}},
      .run = run_generate};
  for (const Option& option : device_options()) verb.options.push_back(option);
  return verb;
}

}  // namespace trireme::cli
