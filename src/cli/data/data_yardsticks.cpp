// SPDX-License-Identifier: Apache-2.0
// trireme data synth and ngram: a source of known entropy, and the loss of counting.
#include <fmt/format.h>

#include "base/error.h"
#include "base/text/count_text.h"
#include "base/text/json.h"
#include "cli/data/data_options.h"
#include "cli/data/data_verbs.h"
#include "data/files/token_data.h"
#include "data/files/vocabulary.h"
#include "data/tokenizer_beside.h"
#include "data/yardsticks/ngram.h"
#include "data/yardsticks/synth.h"

namespace trireme::cli {
namespace {

int run_synth(const Args& args) {
  check_output(args);
  const data::SynthOptions o{.output = args.text("--output"),
                             .format = data::token_format_from_name(args.text("--format")),
                             .seed = static_cast<uint64_t>(args.integer("--seed")),
                             .vocab = args.small_integer("--vocab"),
                             .order = args.small_integer("--order"),
                             .sharpness = args.number("--sharpness"),
                             .documents = args.integer("--documents"),
                             .document_tokens = args.integer("--tokens")};
  const data::SynthReport report = data::synthesize(o);
  data::remove_beside(o.output);
  if (args.wants_json()) {
    fmt::print("{}\n", base::Json{{"ok", true},
                                  {"documents", report.documents},
                                  {"tokens", report.tokens},
                                  {"entropy_rate_nats", report.entropy_rate},
                                  {"output", o.output.string()}}
                           .dump());
  } else {
    fmt::print("{}: {}, {}\nentropy rate {:.6f} nats per token: no model can do better\n",
               o.output.string(), base::count_text(report.documents, "document"),
               base::count_text(report.tokens, "token"), report.entropy_rate);
  }
  return 0;
}

int run_ngram(const Args& args) {
  const auto tokens = open_data_set(args);
  const int64_t context = args.integer("--context");
  const double split = args.number("--split");
  if (context < 0 || context > 4) {
    throw base::ConfigError(fmt::format("--context {}: from 0 to 4", context));
  }
  if (!(split > 0 && split < 1)) {
    throw base::ConfigError(fmt::format("--split {}: between 0 and 1", split));
  }
  data::check_vocabulary(*tokens, 256, {});
  std::vector<int32_t> all(static_cast<size_t>(tokens->tokens()));
  tokens->read(0, all);
  const auto border = static_cast<size_t>(static_cast<double>(all.size()) * (1 - split));
  if (border < 1 || border >= all.size()) {
    throw base::ConfigError(
        fmt::format("{}: {} tokens are too few to split", tokens->name(), all.size()));
  }
  data::NgramModel model(static_cast<int>(context));
  model.train(std::span(all).first(border));
  const double loss = model.loss(all, border);
  if (args.wants_json()) {
    fmt::print("{}\n", base::Json{{"ok", true},
                                  {"context", context},
                                  {"loss", loss},
                                  {"train_tokens", border},
                                  {"validation_tokens", all.size() - border}}
                           .dump());
  } else {
    fmt::print(
        "n-gram model with {} tokens of context: {:.4f} nats per token on the last {} tokens\n",
        context, loss, all.size() - border);
  }
  return 0;
}

}  // namespace

Verb data_synth_verb() {
  return {
      .name = "data synth",
      .summary = "Generate a data set from a Markov source, with its exact entropy rate",
      .details = "Examples:\n  trireme data synth --output runs/markov --vocab 64 --order 2",
      .options = {output_option(),
                  output_format(),
                  overwrite_option(),
                  {.name = "--seed",
                   .kind = Kind::integer,
                   .fallback = "0",
                   .help = "Seed of the Markov source"},
                  {.name = "--vocab",
                   .kind = Kind::integer,
                   .fallback = "64",
                   .help = "Size of the vocabulary"},
                  {.name = "--order",
                   .kind = Kind::integer,
                   .fallback = "1",
                   .help = "Order of the source: tokens of context that the next one depends on"},
                  {.name = "--sharpness",
                   .kind = Kind::number,
                   .fallback = "4",
                   .help =
                       "Concentration of the transition probabilities; higher is more predictable"},
                  {.name = "--documents",
                   .kind = Kind::integer,
                   .fallback = "1000",
                   .help = "Number of documents"},
                  {.name = "--tokens",
                   .kind = Kind::integer,
                   .fallback = "1024",
                   .help = "Tokens in each document"}},
      .run = run_synth};
}

Verb data_ngram_verb() {
  std::vector<Option> options = data_set_options();
  options.push_back({.name = "--context",
                     .kind = Kind::integer,
                     .fallback = "4",
                     .help = "Tokens of context, from 0 to 4"});
  options.push_back({.name = "--split",
                     .kind = Kind::number,
                     .fallback = "0.05",
                     .help = "Part of the data, at its end, that the loss is measured on"});
  return {.name = "data ngram",
          .summary = "Print the loss of an n-gram model, as a baseline",
          .details = "Examples:\n  trireme data ngram runs/book --context 4 --split 0.05",
          .options = std::move(options),
          .run = run_ngram};
}

}  // namespace trireme::cli
