// SPDX-License-Identifier: Apache-2.0
// trireme eval: computes the loss of trained weights on a data set, or their accuracy on tasks.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <memory>
#include <numbers>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/text/json.h"
#include "cli/ckpt/weights_place.h"
#include "cli/infer/eval_blocks.h"
#include "cli/infer/eval_tasks.h"
#include "cli/infer/text_data.h"
#include "cli/shell/device_options.h"
#include "cli/shell/progress.h"
#include "cli/verbs.h"
#include "config/config.h"
#include "data/files/token_data.h"
#include "data/files/vocabulary.h"
#include "spec/recipe.h"
#include "train/batches/batches.h"
#include "train/batches/data_sets.h"
#include "train/batches/run_tokenizer.h"
#include "train/run/validation.h"
#include "train/weights/inference.h"

namespace trireme::cli {
namespace {

// Sequence s has the tokens [s * seq, (s + 1) * seq), and the next token of each as its label; the
// last sequence may be shorter.
struct Windows {
  const data::TokenData& data;
  int64_t seq_len;

  int64_t labels() const { return data.tokens() - 1; }
  int64_t count() const { return (labels() + seq_len - 1) / seq_len; }

  // Fills the tokens and labels of one sequence; positions behind the data are padding without
  // loss.
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

// Returns the losses of the sequences of a micro-batch that starts at sequence `first`.
using LossesFrom = std::function<std::vector<train::SequenceLoss>(int64_t first)>;

struct Losses {
  train::SequenceLoss total;
  std::vector<train::SequenceLoss> sequences;  // without those that are all padding
  int64_t text_bytes = 0;                      // of the labels' text; 0: not known

  double mean() const { return total.loss_sum / static_cast<double>(total.tokens); }
  double bits_per_byte() const {
    return total.loss_sum / std::numbers::ln2 / static_cast<double>(text_bytes);
  }
};

void add(Losses& sum, const Losses& more) {
  sum.total.loss_sum += more.total.loss_sum;
  sum.total.tokens += more.total.tokens;
  sum.text_bytes += more.text_bytes;
  sum.sequences.insert(sum.sequences.end(), more.sequences.begin(), more.sequences.end());
}

Losses all_losses(int64_t count, int64_t at_once, const LossesFrom& losses_from) {
  Progress progress("eval", "sequences", count);
  Losses all;
  for (int64_t first = 0; first < count; first += at_once) {
    for (const train::SequenceLoss& loss : losses_from(first)) {
      if (loss.tokens == 0) continue;
      all.total.loss_sum += loss.loss_sum;
      all.total.tokens += loss.tokens;
      all.text_bytes += loss.bytes;
      all.sequences.push_back(loss);
    }
    progress.update(std::min(count, first + at_once));
  }
  progress.finish();
  return all;
}

// Returns --limit, at most `available`, or `otherwise` if it is not given; 0 means `available`.
int64_t count_of(const Args& args, int64_t available, int64_t otherwise) {
  const int64_t limit = args.has("--limit") ? args.integer("--limit") : otherwise;
  if (limit < 0) throw base::ConfigError(fmt::format("--limit {}: 0 (all) or above", limit));
  return limit == 0 ? available : std::min(available, limit);
}

train::InferenceOptions inference_options(const Args& args) {
  return {.sequences = args.integer("--batch"),
          .seq_len = args.integer("--seq"),
          .dtype = args.text("--dtype"),
          .system = system_of(args),
          .batch_option = "--batch "};
}

// Losses on the data set of --data.
Losses losses_on_data(const Args& args, FoundWeights& weights, const data::TokenData& data,
                      const train::InferenceOptions& options, bool announces) {
  train::Inference model(weights, options);
  if (announces) base::log_info("{}", weights.description());
  data::check_vocabulary(data, model.dims().vocab, {});
  const Windows windows{data, model.seq_len()};
  const int64_t count = count_of(args, windows.count(), 0);
  const auto size = static_cast<size_t>(model.seq_len());
  std::vector<int32_t> tokens(size * static_cast<size_t>(model.sequences())), labels(tokens.size());
  return all_losses(count, model.sequences(), [&](int64_t first) {
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
    return model.losses(tokens, labels);
  });
}

// The configuration of the run that weights belong to. Throws ConfigError if it does not validate.
config::Config validating_run(const FoundWeights& weights) {
  const std::filesystem::path file = weights.run_file();
  if (file.empty()) {
    throw base::ConfigError(
        "--data is missing, and these weights belong to no run whose validation data could be "
        "used");
  }
  config::Config config =
      config::solved(config::load(file.string(), {.model_folders = model_folders()}), 0);
  if (!config.validation.enable) {
    throw base::ConfigError(
        fmt::format("--data is missing, and {} has no validation data (validation.enable = false)",
                    file.string()));
  }
  return config;
}

// Returns the bytes of text by token of the run's data, as its own validation has them; none if
// they are not known, or if the tokenizer is not there any more.
std::vector<int32_t> bytes_by_token(const config::Config& config, const train::DataSets& data,
                                    int64_t vocab) {
  try {
    const auto tokenizer = train::open_run_tokenizer(config, data, vocab);
    return {tokenizer.token_bytes().begin(), tokenizer.token_bytes().end()};
  } catch (const base::Error& error) {
    base::log_info("bits per byte are not computed: {}", error.what());
    return {};
  }
}

// Losses on the held-out samples of the run that the weights belong to, computed as the run does.
Losses losses_on_run(const Args& args, FoundWeights& weights, train::InferenceOptions options,
                     bool announces) {
  const config::Config config = validating_run(weights);
  const train::DataSets data(config, weights.dims().vocab);
  const int64_t seq_len = data.legs().back().seq_len;  // of the run's last validation
  if (args.integer("--seq") != 0 && args.integer("--seq") != seq_len) {
    throw base::ConfigError(fmt::format(
        "--seq {}: samples of the run's validation data have {} tokens; give --data for others",
        args.integer("--seq"), seq_len));
  }
  options.seq_len = seq_len;
  options.document_mask = config.training.document_mask;
  const std::vector<int32_t> token_bytes = bytes_by_token(config, data, weights.dims().vocab);
  train::Inference model(weights, options);
  Losses all;
  for (size_t set = 0; set < data.validations(); ++set) {
    const data::SampleProvider& sampler = data.validation(set, seq_len);
    const int64_t validated =
        train::validated_samples(config::validation_samples(config), sampler.samples());
    const int64_t count = count_of(args, sampler.samples(), validated);
    if (announces) {
      base::log_info("{}, on {} of {} held-out samples of its run{}", weights.description(), count,
                     sampler.samples(),
                     data.validations() > 1 ? " (" + data.validation_name(set) + ")" : "");
    }
    train::SequentialBatches batches(sampler, model.sequences(), count);
    add(all, all_losses(count, model.sequences(), [&](int64_t first) {
          batches.seek(first / model.sequences());
          auto losses = model.losses(batches, [&batches] { return batches.labels(); });
          train::add_bytes(batches.labels(), token_bytes, losses);
          return losses;
        }));
  }
  return all;
}

std::string weights_path(const Args& args) {
  if (args.has("from") == args.has("--weights")) {
    throw base::ConfigError(
        args.has("from")
            ? "the weights are given twice: as an argument, and as --weights"
            : "no weights are given; give a run's folder, a checkpoint, or a folder with "
              "config.json and safetensors");
  }
  return args.text(args.has("from") ? "from" : "--weights");
}

// Returns the data set of --data: tokens, or text that goes through the model's tokenizer.
std::unique_ptr<data::TokenData> open_data(const Args& args, const train::TextCodec* codec) {
  const data::TokenFormat format = data::token_format_from_name(args.text("--format"));
  const std::string path = args.text("--data");
  std::unique_ptr<data::TokenData> data;
  if (codec != nullptr && is_text_to_encode(path, format, *codec)) {
    data = encoded_text(path, *codec);
  } else {
    data = data::open_tokens(path, {.format = format, .type = args.text("--type")});
  }
  if (data->tokens() < 2) {
    throw base::ConfigError(
        fmt::format("{}: {} tokens; a loss needs at least 2", path, data->tokens()));
  }
  return data;
}

void check_precision(const Args& args) {
  const std::string dtype = args.text("--dtype");
  const bool is_fp8 = spec::is_fp8(*spec::precision_from_name(dtype));
  if (is_fp8 && args.has("--tasks")) {
    throw base::ConfigError(fmt::format("--dtype {}: tasks are answered in fp32 or bf16", dtype));
  }
  if (!is_fp8 && args.flag("--by-block")) {
    throw base::ConfigError(
        fmt::format("--by-block needs --dtype fp8-tensor or fp8-block, not {}", dtype));
  }
}

int run_eval(const Args& args) {
  check_precision(args);
  const std::unique_ptr<FoundWeights> weights = find_weights(weights_path(args));
  if (args.has("--tasks")) return run_tasks(args, *weights, inference_options(args));
  for (const char* name : {"--per-item", "--delimiter"}) {
    if (args.has(name)) throw base::ConfigError(fmt::format("{} needs --tasks", name));
  }
  const train::InferenceOptions options = inference_options(args);
  std::unique_ptr<train::TextCodec> codec;
  std::unique_ptr<data::TokenData> data;
  if (args.has("--data")) {
    codec = known_codec(args, *weights);
    data = open_data(args, codec.get());
  }
  bool is_first = true;
  const auto losses_with = [&](const train::InferenceOptions& with) {
    const bool announces = std::exchange(is_first, false);
    return data ? losses_on_data(args, *weights, *data, with, announces)
                : losses_on_run(args, *weights, with, announces);
  };
  Losses losses = losses_with(options);
  if (codec) losses.text_bytes = text_bytes(*codec, *data, losses.total.tokens);
  const train::SequenceLoss& total = losses.total;
  const double mean = losses.mean();
  std::optional<LossByBlock> by_block;
  if (args.flag("--by-block")) {
    by_block = loss_by_block(
        weights->dims(), options, mean,
        [&](const train::InferenceOptions& with) { return losses_with(with).mean(); });
  }
  if (args.wants_json()) {
    base::Json sequences = base::Json::array();
    for (const train::SequenceLoss& loss : losses.sequences) {
      sequences.push_back({{"loss_sum", loss.loss_sum}, {"tokens", loss.tokens}});
    }
    base::Json out = {{"ok", true},
                      {"weights", weights->json()},
                      {"loss_sum", total.loss_sum},
                      {"tokens", total.tokens},
                      {"loss", mean},
                      {"perplexity", std::exp(mean)}};
    if (losses.text_bytes > 0) {
      out["bytes"] = losses.text_bytes;
      out["bits_per_byte"] = losses.bits_per_byte();
    }
    if (by_block) out["by_block"] = to_json(*by_block);
    out["sequences"] = sequences;
    fmt::print("{}\n", out.dump());
    return 0;
  }
  if (args.flag("--per-sequence")) {
    for (size_t i = 0; i < losses.sequences.size(); ++i) {
      fmt::print("sequence {:6}  loss sum {:12.4f}  tokens {:6}\n", i, losses.sequences[i].loss_sum,
                 losses.sequences[i].tokens);
    }
  }
  fmt::print("loss sum {:.6f}  tokens {}  loss {:.6f}  perplexity {:.4f}", total.loss_sum,
             total.tokens, mean, std::exp(mean));
  if (losses.text_bytes > 0) fmt::print("  bits per byte {:.4f}", losses.bits_per_byte());
  fmt::print("\n");
  if (by_block) fmt::print("{}", to_text(*by_block));
  return 0;
}

}  // namespace

Verb eval_verb() {
  Verb verb = {
      .name = "eval",
      .summary = "Compute the loss of trained weights on a data set, or accuracy on tasks",
      .details =
          "Every token but the first is predicted once, from the tokens before it in its\n"
          "sequence. For a run's folder, the final weights are used, or if there are none the\n"
          "newest intact checkpoint. Without --data the loss is the run's validation loss: the "
          "same\n"
          "samples and the same mean. Text goes through the tokenizer that lies with the weights;\n"
          "with a tokenizer, or bytes as tokens, the loss is also printed in bits per byte.\n\n"
          "--tasks asks multiple-choice questions, one JSON object per line with \"context\" (or\n"
          "\"ctx\"), \"choices\" (or \"endings\") and \"label\" (or \"gold\"). The answer is the "
          "choice\n"
          "with the highest log-likelihood (acc), or the highest per byte "
          "(acc_norm).\n\n"
          "--dtype fp8-tensor shows the loss that a training run with this recipe would see, and\n"
          "--by-block how much of its distance to bf16 each block adds: blocks that add most can\n"
          "stay in bf16 (precision.bf16_blocks).\n\nExamples:\n"
          "  trireme eval runs/kjv\n"
          "  trireme eval runs/kjv/weights/final --data runs/kjv-data/kjv --seq 256\n"
          "  trireme eval DIR --data val.bin --seq 1024 --json\n"
          "  trireme eval runs/kjv --data book.txt --seq 256\n"
          "  trireme eval runs/kjv --dtype fp8-tensor --by-block\n"
          "  trireme eval runs/kjv --tasks tasks.jsonl --per-item answers.jsonl",
      .options =
          {weights_argument(false),
           {.name = "--weights", .help = "Weights, as an option instead of the argument `from`"},
           {.name = "--data",
            .help = "Data set: Megatron, llm.c, nanoGPT, .txt or .jsonl; default: the validation "
                    "data of the "
                    "run that the weights belong to"},
           {.name = "--tasks",
            .help = "Multiple-choice questions as JSON lines; -: standard input"},
           {.name = "--per-item",
            .help = "With --tasks: write one JSON object per question to this file"},
           {.name = "--delimiter",
            .help = "With --tasks: text between context and choice, unless white space is there; "
                    "default: one space"},
           tokenizer_option(),
           {.name = "--seq",
            .kind = Kind::integer,
            .fallback = "0",
            .help = "Tokens of a sequence; 0: the model's max_seq, or the run's seq_len"},
           {.name = "--batch",
            .kind = Kind::integer,
            .fallback = "8",
            .help = "Sequences of a micro-batch"},
           {.name = "--limit",
            .kind = Kind::integer,
            .help = "Number of sequences, from the first; 0: all. Default: all of --data, or as "
                    "many as "
                    "the run validates on"},
           {.name = "--format",
            .fallback = "auto",
            .help = "Format of the data set",
            .choices = {"auto", "megatron", "llmc", "nanogpt", "text"}},
           {.name = "--type", .help = "Token type of files without a header: u16 or u32"},
           {.name = "--dtype",
            .fallback = "fp32",
            .help = "Precision of the weights; of the products with fp8-tensor and fp8-block, "
                    "which need the memory of training",
            .choices = {"fp32", "bf16", "fp8-tensor", "fp8-block"}},
           {.name = "--by-block",
            .kind = Kind::flag,
            .help = "With an fp8 --dtype: also the loss with one block at a time in 8 bits, and in "
                    "bf16"},
           {.name = "--per-sequence",
            .kind = Kind::flag,
            .help = "Also print the loss of every sequence"}},
      .run = run_eval};
  for (const Option& option : device_options()) verb.options.push_back(option);
  return verb;
}

}  // namespace trireme::cli
