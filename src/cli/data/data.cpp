// SPDX-License-Identifier: Apache-2.0
// trireme data: build, inspect, synth, ngram.
#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "base/text/count_text.h"
#include "base/text/json.h"
#include "cli/shell/progress.h"
#include "cli/verbs.h"
#include "data/build.h"
#include "data/files/token_data.h"
#include "data/files/token_writer.h"
#include "data/files/vocabulary.h"
#include "data/inspect.h"
#include "data/yardsticks/ngram.h"
#include "data/yardsticks/synth.h"
#include "train/setup/setup.h"

namespace trireme::cli {
namespace {

const Option format_option = {.name = "--format",
                              .fallback = "auto",
                              .help = "Format of the data set",
                              .choices = {"auto", "megatron", "llmc", "nanogpt", "text"}};
const Option type_option = {.name = "--type",
                            .help = "Token type of files without a header: u16 or u32"};
const Option eod_option = {
    .name = "--eod",
    .kind = Kind::integer,
    .fallback = "-1",
    .help = "Token that ends a document, in formats without an index; -1: none"};
const Option output_format = {.name = "--format",
                              .fallback = "megatron",
                              .help = "Format to write",
                              .choices = {"megatron", "llmc"}};

const Option overwrite_option = {
    .name = "--overwrite", .kind = Kind::flag, .help = "Replace the data set if it already exists"};

// Throws ConfigError if the data set exists and --overwrite is not given.
void check_output(const Args& args) {
  const auto format = data::token_format_from_name(args.text("--format"));
  for (const std::filesystem::path& file : data::token_files(args.text("--output"), format)) {
    std::error_code ignored;
    if (std::filesystem::is_regular_file(file, ignored) && !args.flag("--overwrite")) {
      throw base::ConfigError(
          fmt::format("{}: already exists; give --overwrite to replace it, or another --output",
                      file.string()));
    }
  }
}

int build(const Args& args) {
  check_output(args);
  data::BuildOptions o;
  for (const std::string& input : args.list("inputs")) o.inputs.emplace_back(input);
  o.output = args.text("--output");
  o.format = data::token_format_from_name(args.text("--format"));
  o.workers = train::thread_count(args.integer("--workers"));
  o.end_of_document = args.small_integer("--eod");
  o.split_lines = args.flag("--split-lines");
  o.raw_bytes = args.flag("--raw-bytes");
  o.text_key = args.text("--key");
  std::unique_ptr<Progress> progress;
  o.progress = [&progress](const data::BuildProgress& p) {
    if (!progress) progress = std::make_unique<Progress>("data build", "bytes", p.bytes_total);
    progress->update(p.bytes_done, base::count_text(p.documents, "document"));
  };
  const data::BuildReport report = data::build_dataset(o);
  if (progress) progress->finish();
  if (args.wants_json()) {
    fmt::print("{}\n", base::Json{{"ok", true},
                                  {"documents", report.documents},
                                  {"tokens", report.tokens},
                                  {"input_bytes", report.input_bytes},
                                  {"empty_documents", report.empty_documents},
                                  {"vocab", report.vocab},
                                  {"output", o.output.string()}}
                           .dump());
  } else {
    fmt::print("{}: {}, {} (vocabulary {}), {} left out\n", o.output.string(),
               base::count_text(report.documents, "document"),
               base::count_text(report.tokens, "token"), report.vocab,
               base::count_text(report.empty_documents, "empty document"));
  }
  return 0;
}

std::unique_ptr<data::TokenData> open(const Args& args) {
  return data::open_tokens(args.text("data"),
                           {.format = data::token_format_from_name(args.text("--format")),
                            .type = args.text("--type"),
                            .end_of_document = args.small_integer("--eod")});
}

int inspect(const Args& args) {
  const auto tokens = open(args);
  Progress progress("data inspect", "tokens", tokens->tokens());
  const data::DatasetReport report =
      data::inspect(*tokens, [&progress](int64_t done, int64_t) { progress.update(done); });
  progress.finish();
  if (args.wants_json()) {
    base::Json out = data::to_json(report);
    out["ok"] = true;
    fmt::print("{}\n", out.dump());
  } else {
    fmt::print("{}", data::to_text(report));
  }
  return 0;
}

int synth(const Args& args) {
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

int ngram(const Args& args) {
  const auto tokens = open(args);
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

std::vector<Verb> data_verbs() {
  const Option output = {.name = "--output",
                         .help = "Data set to write: PREFIX (for .bin and .idx) or FILE.bin",
                         .is_required = true};
  const Option input = {.name = "data",
                        .help = "Data set: a file, or the prefix of .bin and .idx",
                        .is_required = true};
  return {
      {.name = "data build",
       .summary = "Convert text to tokens, one per byte",
       .details = "Examples:\n"
                  "  trireme data build book.txt --output runs/book\n"
                  "  trireme data build a.jsonl b.jsonl --output corpus --key text --workers 4",
       .options = {{.name = "inputs",
                    .kind = Kind::list,
                    .help = "Text files: .txt or .jsonl",
                    .is_required = true},
                   output,
                   output_format,
                   overwrite_option,
                   {.name = "--workers",
                    .kind = Kind::integer,
                    .fallback = "0",
                    .help = "Number of threads; 0: all cores. The output does not depend on it"},
                   {.name = "--eod",
                    .kind = Kind::integer,
                    .fallback = "0",
                    .help = "Token to write after each document; -1: none"},
                   {.name = "--split-lines",
                    .kind = Kind::flag,
                    .help = "Treat every line of a .txt file as a document"},
                   {.name = "--raw-bytes",
                    .kind = Kind::flag,
                    .help = "Accept bytes in .txt files that are not UTF-8"},
                   {.name = "--key",
                    .fallback = "text",
                    .help = "Key of the text in .jsonl files"}},
       .run = build},
      {.name = "data inspect",
       .summary = "Print documents, lengths, skew and token range of a data set",
       .details = "Examples:\n  trireme data inspect runs/book\n"
                  "  trireme data inspect train.bin --format nanogpt --type u16 --json",
       .options = {input, format_option, type_option, eod_option},
       .run = inspect},
      {.name = "data synth",
       .summary = "Generate a data set from a Markov source, with its exact entropy rate",
       .details = "Examples:\n  trireme data synth --output runs/markov --vocab 64 --order 2",
       .options =
           {output,
            output_format,
            overwrite_option,
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
             .help = "Concentration of the transition probabilities; higher is more predictable"},
            {.name = "--documents",
             .kind = Kind::integer,
             .fallback = "1000",
             .help = "Number of documents"},
            {.name = "--tokens",
             .kind = Kind::integer,
             .fallback = "1024",
             .help = "Tokens in each document"}},
       .run = synth},
      {.name = "data ngram",
       .summary = "Print the loss of an n-gram model, as a baseline",
       .details = "Examples:\n  trireme data ngram runs/book --context 4 --split 0.05",
       .options = {input,
                   format_option,
                   type_option,
                   eod_option,
                   {.name = "--context",
                    .kind = Kind::integer,
                    .fallback = "4",
                    .help = "Tokens of context, from 0 to 4"},
                   {.name = "--split",
                    .kind = Kind::number,
                    .fallback = "0.05",
                    .help = "Part of the data, at its end, that the loss is measured on"}},
       .run = ngram},
      data_clean_verb()};
}

}  // namespace trireme::cli
