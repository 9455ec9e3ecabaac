// SPDX-License-Identifier: Apache-2.0
// trireme eval: the loss of trained weights on a data set.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "cli/device_options.h"
#include "cli/progress.h"
#include "cli/verbs.h"
#include "data/token_data.h"
#include "data/vocabulary.h"
#include "train/inference.h"

namespace trireme::cli {
namespace {

// Sequence s holds tokens [s * seq, (s + 1) * seq) and is asked for the next one of each; the last
// sequence may be shorter.
struct Windows {
  const data::TokenData& data;
  int64_t seq_len;

  int64_t labels() const { return data.tokens() - 1; }
  int64_t count() const { return (labels() + seq_len - 1) / seq_len; }

  // Into tokens and labels of one sequence; what is missing becomes padding without loss.
  void read(int64_t sequence, std::span<int32_t> tokens, std::span<int32_t> out) const {
    std::fill(tokens.begin(), tokens.end(), 0);
    std::fill(out.begin(), out.end(), -1);
    const int64_t begin = sequence * seq_len;
    const int64_t length = std::min(seq_len, labels() - begin);
    if (length <= 0) return;
    std::vector<int32_t> read(static_cast<size_t>(length) + 1);
    data.read(begin, read);
    std::copy(read.begin(), read.end() - 1, tokens.begin());
    std::copy(read.begin() + 1, read.end(), out.begin());
  }
};

int run_eval(const Args& args) {
  const auto data = data::open_tokens(
      args.text("--data"),
      {.format = data::token_format_from_name(args.text("--format")), .type = args.text("--type")});
  if (data->tokens() < 2) {
    throw base::ConfigError(
        fmt::format("{}: {} tokens; a loss needs at least 2", data->name(), data->tokens()));
  }
  train::Inference model(args.text("--weights"), {.sequences = args.integer("--batch"),
                                                  .seq_len = args.integer("--seq"),
                                                  .dtype = args.text("--dtype"),
                                                  .system = system_of(args),
                                                  .batch_option = "--batch "});
  data::check_vocabulary(*data, model.dims().vocab, {});
  const Windows windows{*data, model.seq_len()};
  int64_t count = windows.count();
  if (args.integer("--limit") > 0) count = std::min(count, args.integer("--limit"));

  Progress progress("eval", "sequences", count);
  base::Json sequences = base::Json::array();
  train::SequenceLoss total;
  const auto size = static_cast<size_t>(model.seq_len());
  std::vector<int32_t> tokens(size * static_cast<size_t>(model.sequences())), labels(tokens.size());
  for (int64_t first = 0; first < count; first += model.sequences()) {
    for (int64_t i = 0; i < model.sequences(); ++i) {
      const size_t at = static_cast<size_t>(i) * size;
      const std::span<int32_t> row_tokens(tokens.data() + at, size),
          row_labels(labels.data() + at, size);
      if (first + i < count) {
        windows.read(first + i, row_tokens, row_labels);
      } else {
        std::fill(row_labels.begin(), row_labels.end(), -1);
      }
    }
    for (const auto& loss : model.losses(tokens, labels)) {
      if (loss.tokens == 0) continue;
      total.loss_sum += loss.loss_sum;
      total.tokens += loss.tokens;
      sequences.push_back({{"loss_sum", loss.loss_sum}, {"tokens", loss.tokens}});
    }
    progress.update(std::min(count, first + model.sequences()));
  }
  progress.finish();
  const double mean = total.loss_sum / static_cast<double>(total.tokens);
  if (args.wants_json()) {
    fmt::print("{}\n", base::Json{{"ok", true},
                                  {"loss_sum", total.loss_sum},
                                  {"tokens", total.tokens},
                                  {"loss", mean},
                                  {"perplexity", std::exp(mean)},
                                  {"sequences", sequences}}
                           .dump());
    return 0;
  }
  if (args.flag("--per-sequence")) {
    for (size_t i = 0; i < sequences.size(); ++i) {
      fmt::print("sequence {:6}  loss sum {:12.4f}  tokens {:6}\n", i,
                 sequences[i]["loss_sum"].get<double>(), sequences[i]["tokens"].get<int64_t>());
    }
  }
  fmt::print("loss sum {:.6f}  tokens {}  loss {:.6f}  perplexity {:.4f}\n", total.loss_sum,
             total.tokens, mean, std::exp(mean));
  return 0;
}

}  // namespace

Verb eval_verb() {
  Verb verb = {
      .name = "eval",
      .summary = "Loss of trained weights on a data set, per sequence and in all",
      .details =
          "Every token but the first is predicted once, from the tokens before it in its\n"
          "sequence of T.\n\nExamples:\n"
          "  trireme eval --weights runs/kjv/weights/final --data runs/kjv-data/kjv --seq 256\n"
          "  trireme eval --weights DIR --data val.bin --seq 1024 --json",
      .options =
          {{.name = "--weights",
            .help = "Folder with config.json and safetensors",
            .is_required = true},
           {.name = "--data",
            .help = "Tokens: Megatron, llm.c, nanoGPT or text",
            .is_required = true},
           {.name = "--seq",
            .kind = Kind::integer,
            .fallback = "0",
            .help = "Length of a sequence; 0: the model's longest"},
           {.name = "--batch", .kind = Kind::integer, .fallback = "8", .help = "Sequences at once"},
           {.name = "--limit",
            .kind = Kind::integer,
            .fallback = "0",
            .help = "Only the first sequences; 0: all"},
           {.name = "--format",
            .fallback = "auto",
            .help = "Of the data",
            .choices = {"auto", "megatron", "llmc", "nanogpt", "text"}},
           {.name = "--type", .help = "Of tokens without header: u16 or u32"},
           {.name = "--dtype",
            .fallback = "fp32",
            .help = "fp32 or bf16",
            .choices = {"fp32", "bf16"}},
           {.name = "--per-sequence", .kind = Kind::flag, .help = "Also a line per sequence"}},
      .run = run_eval};
  for (const Option& option : device_options()) verb.options.push_back(option);
  return verb;
}

}  // namespace trireme::cli
