// SPDX-License-Identifier: Apache-2.0
// trireme data tokenizer train: a byte-level BPE tokenizer from documents.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <system_error>

#include "base/error.h"
#include "base/log.h"
#include "base/text/count_text.h"
#include "base/text/json.h"
#include "cli/data/data_options.h"
#include "cli/data/data_verbs.h"
#include "cli/shell/progress.h"
#include "data/corpus/counts.h"
#include "data/train_tokenizer.h"
#include "text/tokenizer.h"
#include "train/setup/setup.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;
using base::ConfigError;
using base::IoError;
using base::Json;

// The folder --output: it is created before the training, and removed again if that fails.
class OutputFolder {
 public:
  OutputFolder(fs::path folder, bool may_replace) : folder_(std::move(folder)) {
    std::error_code error;
    for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
      if (fs::exists(folder_ / name, error) && !may_replace) {
        throw ConfigError(
            fmt::format("{}: already exists; give --overwrite to replace it, or another --output",
                        (folder_ / name).string()));
      }
    }
    if (fs::exists(folder_ / "tokenizer.model", error)) {
      throw ConfigError(fmt::format("{}: belongs to another tokenizer; give another --output",
                                    (folder_ / "tokenizer.model").string()));
    }
    is_new_ = fs::create_directories(folder_, error);
    if (error || !fs::is_directory(folder_)) {
      throw IoError(fmt::format("{}: cannot be written: {}", folder_.string(),
                                error ? error.message() : "it is not a folder"));
    }
  }
  ~OutputFolder() {
    std::error_code ignored;
    if (is_new_ && !is_kept_) fs::remove_all(folder_, ignored);
  }
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  void keep() { is_kept_ = true; }
  const fs::path& path() const { return folder_; }

 private:
  fs::path folder_;
  bool is_new_ = false, is_kept_ = false;
};

// Names of tokens for tokenizer_config.json.
struct TokenNames {
  std::string eos, bos, pad;
};

// Returns all special tokens; the named ones are added if they are not among them.
std::vector<std::string> special_tokens_of(const Args& args, TokenNames& names) {
  std::vector<std::string> special = args.list("--special");
  names = {.eos = args.text("--eos"), .bos = args.text("--bos"), .pad = args.text("--pad")};
  if (special.empty() && names.eos.empty()) special.emplace_back("<|endoftext|>");
  if (names.eos.empty()) names.eos = special.front();
  for (const std::string& name : {names.eos, names.bos, names.pad}) {
    if (!name.empty() && std::find(special.begin(), special.end(), name) == special.end()) {
      special.push_back(name);
    }
  }
  return special;
}

text::KnownPattern pattern_of(const std::string& name) {
  if (name == "gpt2") return text::KnownPattern::gpt2;
  return name == "qwen2" ? text::KnownPattern::qwen2 : text::KnownPattern::llama3;
}

// As `transformers` reads it.
std::string config_json(const TokenNames& names) {
  Json config{{"tokenizer_class", "PreTrainedTokenizerFast"},
              {"clean_up_tokenization_spaces", false},
              {"eos_token", names.eos}};
  if (!names.bos.empty()) config["bos_token"] = names.bos;
  if (!names.pad.empty()) config["pad_token"] = names.pad;
  return config.dump(2) + "\n";
}

data::TokenizerTrainingOptions training_options(const Args& args, TokenNames& names) {
  data::TokenizerTrainingOptions o;
  o.inputs = args.list("inputs");
  o.kind = data::source_kind_from_name(args.text("--kind"));
  o.documents = documents_of(args);
  o.bpe = {.vocab_size = args.small_integer("--vocab"),
           .min_frequency = args.integer("--min-frequency"),
           .special_tokens = special_tokens_of(args, names),
           .pattern = pattern_of(args.text("--pattern")),
           .nfc = args.flag("--nfc")};
  if (o.bpe.min_frequency < 1) {
    throw ConfigError(fmt::format("--min-frequency {}: 1 or more", o.bpe.min_frequency));
  }
  o.workers = train::thread_count(args.integer("--workers"));
  o.max_bytes = args.integer("--max-bytes");
  return o;
}

// Shows documents that are read, then tokens that are learned.
class TrainingProgress {
 public:
  explicit TrainingProgress(int64_t vocab) : vocab_(vocab) {}
  void update(const data::TokenizerTrainingProgress& p) {
    if (p.tokens == 0) {
      const auto megabytes = [](int64_t bytes) {
        return bytes < 0 ? 0 : (bytes + 999'999) / 1'000'000;
      };
      if (!reading_) {
        reading_ = std::make_unique<Progress>("reading", "MB", megabytes(p.bytes_total));
      }
      reading_->update(megabytes(p.bytes_done), base::count_text(p.documents, "document"));
      return;
    }
    if (reading_) reading_->finish();
    reading_.reset();
    if (!learning_) {
      learning_ = std::make_unique<Progress>("learning merges", "tokens", vocab_);
      learning_->begin(p.tokens);
    }
    learning_->update(p.tokens);
  }
  void finish() {
    if (reading_) reading_->finish();
    if (learning_) learning_->finish();
  }

 private:
  int64_t vocab_;
  std::unique_ptr<Progress> reading_, learning_;
};

int run_tokenizer_train(const Args& args) {
  TokenNames names;
  data::TokenizerTrainingOptions options = training_options(args, names);
  OutputFolder folder(args.text("--output"), args.flag("--overwrite"));
  TrainingProgress progress(options.bpe.vocab_size);
  options.progress = [&](const data::TokenizerTrainingProgress& p) { progress.update(p); };
  const auto begin = std::chrono::steady_clock::now();
  const data::TokenizerTraining trained = data::train_tokenizer(options);
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
  progress.finish();
  text::write_tokenizer(folder.path() / "tokenizer_config.json", config_json(names));
  text::write_tokenizer(folder.path() / "tokenizer.json", trained.json);
  folder.keep();

  const auto tokenizer = text::open_tokenizer(folder.path());
  const size_t sample_tokens = tokenizer->encode(trained.sample, {.add_special = false}).size();
  const double bytes_per_token = static_cast<double>(trained.sample.size()) /
                                 static_cast<double>(std::max<size_t>(sample_tokens, 1));
  const int64_t merges =
      tokenizer->vocab_size() - 256 - static_cast<int64_t>(options.bpe.special_tokens.size());
  if (args.wants_json()) {
    fmt::print("{}\n", Json{{"ok", true},
                            {"vocab", tokenizer->vocab_size()},
                            {"merges", merges},
                            {"documents", trained.documents},
                            {"text_bytes", trained.text_bytes},
                            {"pieces", trained.pieces},
                            {"rejected", trained.rejected},
                            {"bytes_per_token", bytes_per_token},
                            {"eos", names.eos},
                            {"fingerprint", tokenizer->fingerprint()},
                            {"seconds", time.count()},
                            {"output", data::json_name(folder.path())}}
                           .dump());
    return 0;
  }
  fmt::print("{}: vocabulary {}, {}, trained in {:.1f} s\n", folder.path().string(),
             tokenizer->vocab_size(), base::count_text(merges, "merge"), time.count());
  fmt::print("  text       {} in {}, {} different pieces\n",
             base::count_text(trained.text_bytes, "byte"),
             base::count_text(trained.documents, "document"), trained.pieces);
  fmt::print("  encodes    {:.2f} bytes per token of the first {}\n", bytes_per_token,
             base::count_text(static_cast<int64_t>(trained.sample.size()), "byte"));
  if (tokenizer->vocab_size() < options.bpe.vocab_size) {
    fmt::print("  note       no more pairs occur {} times, so the vocabulary is smaller than {}\n",
               options.bpe.min_frequency, options.bpe.vocab_size);
  }
  if (trained.rejected > 0) {
    fmt::print("  rejected   {}, first: {}\n", base::count_text(trained.rejected, "document"),
               trained.first_rejected);
  }
  return 0;
}

}  // namespace

Verb tokenizer_train_verb() {
  std::vector<Option> options = {
      {.name = "inputs",
       .kind = Kind::list,
       .help = "Files, folders, patterns, @list.txt, or - for stdin, as in data build",
       .is_required = true},
      {.name = "--output",
       .help = "Folder to write tokenizer.json and tokenizer_config.json to",
       .is_required = true},
      {.name = "--vocab",
       .kind = Kind::integer,
       .help = "Size of the vocabulary, with the 256 bytes and the special tokens",
       .is_required = true},
      {.name = "--pattern",
       .fallback = "llama3",
       .help = "Expression that splits texts into pieces, by the model that uses it",
       .choices = {"gpt2", "llama3", "qwen2"}},
      {.name = "--special",
       .kind = Kind::list,
       .help = "Special tokens, which get the first ids; default: <|endoftext|>"},
      {.name = "--eos", .help = "Special token that ends texts; default: the first one"},
      {.name = "--bos", .help = "Special token that begins texts; default: none"},
      {.name = "--pad", .help = "Special token for padding; default: none"},
      {.name = "--min-frequency",
       .kind = Kind::integer,
       .fallback = "2",
       .help = "Merge pairs that occur at least this often"},
      {.name = "--nfc", .kind = Kind::flag, .help = "Normalize texts to NFC"},
      {.name = "--max-bytes",
       .kind = Kind::integer,
       .fallback = "0",
       .help = "Bytes of the inputs to read; 0: all"},
      overwrite_option(),
      workers_option()};
  for (Option& option : document_options()) options.push_back(std::move(option));
  return {.name = "data tokenizer train",
          .summary = "Train a byte-level BPE tokenizer",
          .details =
              "The result is the same for any number of workers, and Hugging Face tokenizers and\n"
              "transformers load it.\n\n"
              "Examples:\n"
              "  trireme data tokenizer train book.txt --output runs/tokenizer --vocab 512\n"
              "  trireme data tokenizer train a.jsonl b.jsonl --output runs/tok --vocab 300 "
              "--pattern gpt2 --special '<|endoftext|>' '<|pad|>' --pad '<|pad|>'",
          .options = std::move(options),
          .run = run_tokenizer_train};
}

}  // namespace trireme::cli
