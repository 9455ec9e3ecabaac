// SPDX-License-Identifier: Apache-2.0
// trireme data build: documents to tokens.
#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <system_error>

#include "base/error.h"
#include "base/text/count_text.h"
#include "base/text/json.h"
#include "base/text/printable.h"
#include "cli/data/data_options.h"
#include "cli/data/data_verbs.h"
#include "cli/shell/progress.h"
#include "data/corpus/corpus.h"
#include "data/corpus/corpus_tokenizer.h"
#include "data/corpus/publish.h"
#include "data/corpus/rejected.h"
#include "data/tokenizer_beside.h"
#include "train/setup/setup.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;
using base::ConfigError;

constexpr size_t shown_rejections = 3;

// Bytes of inputs as megabytes of a progress line.
int64_t megabytes(int64_t bytes) { return bytes < 0 ? 0 : (bytes + 999'999) / 1'000'000; }

struct BuildCall {
  data::CorpusOptions corpus;
  std::string tokenizer_name;  // for the summary
};

// Tokens that are copied need a vocabulary, and may have a tokenizer that would get lost.
void check_token_inputs(const Args& args, const data::CorpusOptions& options,
                        data::CorpusTokenizer& tokenizer) {
  bool has_text = false, has_tokens = false;
  for (const data::Shard& shard : data::find_shards(options.inputs, {.kind = options.kind})) {
    if (shard.kind != data::SourceKind::tokens) {
      has_text = true;
      continue;
    }
    has_tokens = true;
    const std::string name = shard.path.string();
    fs::path mask = data::data_prefix(shard.path);
    mask += ".mask.bin";
    std::error_code ignored;
    if (fs::exists(mask, ignored)) {
      throw ConfigError(
          fmt::format("{}: has the loss mask {}, which data build does not join; build from the "
                      "documents, or rewrite one data set with data convert",
                      name, mask.string()));
    }
    if (args.has("--tokenizer") || args.has("--vocab")) continue;
    const auto beside = data::tokenizer_beside(shard.path);
    throw ConfigError(fmt::format(
        "{}: holds tokens, which are copied; give {}, so that they can be checked", name,
        beside ? fmt::format("--tokenizer {}", beside->string())
               : "--tokenizer, or --vocab with the size of their vocabulary"));
  }
  if (args.has("--vocab") && (has_text || !has_tokens)) {
    throw ConfigError(
        "--vocab is for inputs that are tokens; documents have the vocabulary of --tokenizer, or "
        "of bytes");
  }
  if (args.has("--vocab")) {
    tokenizer.vocab = args.integer("--vocab");
    tokenizer.fingerprint = "tokens";
    tokenizer.end_of_document = -1;  // documents are copied with their ends
  }
}

BuildCall build_call(const Args& args) {
  BuildCall call;
  data::CorpusOptions& o = call.corpus;
  o.inputs = args.list("inputs");
  o.kind = data::source_kind_from_name(args.text("--kind"));
  o.documents = documents_of(args);
  o.documents.offers_raw_bytes = !args.has("--tokenizer");
  o.documents.tokens = {.type = args.text("--input-type"),
                        .end_of_document = args.small_integer("--input-eod")};
  o.output = args.text("--output");
  o.format = data::token_format_from_name(args.text("--format"));
  o.workers = train::thread_count(args.integer("--workers"));
  o.max_rejected = args.integer("--max-rejected");
  o.start_over = args.flag("--overwrite");
  const data::DocumentTokens tokens{.begin = args.text("--bod"), .end = args.text("--eod")};
  if (args.has("--tokenizer")) {
    if (o.documents.raw_bytes || args.has("--vocab")) {
      throw ConfigError(fmt::format(
          "{} does not go with --tokenizer: {}", o.documents.raw_bytes ? "--raw-bytes" : "--vocab",
          o.documents.raw_bytes ? "a tokenizer encodes UTF-8" : "the tokenizer has a vocabulary"));
    }
    call.tokenizer_name = args.text("--tokenizer");
    o.tokenizer = data::corpus_tokenizer(text::open_tokenizer(call.tokenizer_name), tokens);
  } else {
    o.tokenizer = data::byte_tokenizer(tokens);
  }
  check_token_inputs(args, o, o.tokenizer);
  return call;
}

double ratio(int64_t a, int64_t b) {
  return b == 0 ? 0 : static_cast<double>(a) / static_cast<double>(b);
}

base::Json result_json(const BuildCall& call, const data::CorpusReport& report, double seconds) {
  using base::Json;
  const data::CorpusCounts& total = report.total;
  const data::CorpusTokenizer& tokenizer = call.corpus.tokenizer;
  const base::Json counts = data::to_json(total);
  Json files = Json::array(), first = Json::array();
  for (const fs::path& file : report.files) files.push_back(data::json_name(file));
  fs::path rejected = data::corpus_prefix(call.corpus.output);
  rejected += ".rejected.jsonl";
  if (total.all_rejected() > 0) {
    for (const data::RejectedLine& line : data::first_rejected(rejected, shown_rejections)) {
      first.push_back({{"place", line.place}, {"reason", line.reason}, {"detail", line.detail}});
    }
  }
  return {{"ok", true},
          {"documents", total.documents},
          {"tokens", total.tokens},
          {"text_bytes", total.text_bytes},
          {"input_bytes", total.stored_bytes},
          {"bytes_per_token", ratio(total.text_bytes, total.tokens)},
          {"tokens_per_document", ratio(total.tokens, total.documents)},
          {"empty_documents", total.rejected[static_cast<size_t>(data::RejectReason::empty)]},
          {"blank_lines", total.blank_lines},
          {"rejected", counts["rejected"]},
          {"rejected_first", first},
          {"shards", report.shards},
          {"resumed_shards", report.resumed_shards},
          {"vocab", report.vocab},
          {"type", std::string(name_of(report.type))},
          {"has_mask", report.has_mask},
          {"tokenizer",
           {{"fingerprint", tokenizer.fingerprint},
            {"begin_of_document", tokenizer.begin_of_document},
            {"end_of_document", tokenizer.end_of_document}}},
          {"seconds", seconds},
          {"files", files},
          {"output", data::json_name(call.corpus.output)}};
}

std::string result_text(const BuildCall& call, const base::Json& result) {
  const auto count = [&](const char* key, const char* noun) {
    return base::count_text(result[key].get<int64_t>(), noun);
  };
  std::string text =
      fmt::format("{}: {}, {} (vocabulary {}, stored as {})\n", call.corpus.output.string(),
                  count("documents", "document"), count("tokens", "token"),
                  result["vocab"].get<int64_t>(), result["type"].get<std::string>());
  text += fmt::format("  text       {} in {}: {:.2f} bytes per token, {:.1f} tokens per document\n",
                      count("text_bytes", "byte"), count("shards", "file"),
                      result["bytes_per_token"].get<double>(),
                      result["tokens_per_document"].get<double>());
  const data::CorpusTokenizer& tokenizer = call.corpus.tokenizer;
  if (!call.tokenizer_name.empty()) {
    text += fmt::format("  tokenizer  {}, copied to {}; end of document {}\n", call.tokenizer_name,
                        data::tokenizer_folder_of(data::corpus_prefix(call.corpus.output)).string(),
                        tokenizer.end_of_document);
  }
  if (result["has_mask"] == true) text += "  mask       the loss is taken on completions only\n";
  if (result["resumed_shards"].get<int64_t>() > 0) {
    text += fmt::format("  resumed    {} were done by an earlier build\n",
                        count("resumed_shards", "file"));
  }
  if (result["rejected"].empty()) return text;
  std::string reasons;
  for (const auto& item : result["rejected"].items()) {
    reasons += fmt::format("{}{} {}", reasons.empty() ? "" : ", ", item.value().get<int64_t>(),
                           item.key());
  }
  text += fmt::format("  rejected   {}\n", reasons);
  for (const base::Json& line : result["rejected_first"]) {
    text += fmt::format("             {}: {}: {}\n", line["place"].get<std::string>(),
                        line["reason"].get<std::string>(),
                        base::printable(line["detail"].get<std::string>()));
  }
  return text + fmt::format("             all of them: {}.rejected.jsonl\n",
                            data::corpus_prefix(call.corpus.output).string());
}

int run_build(const Args& args) {
  check_output(args);
  BuildCall call = build_call(args);
  std::unique_ptr<Progress> progress;
  call.corpus.progress = [&progress](const data::CorpusProgress& p) {
    if (!progress) {
      progress = std::make_unique<Progress>("data build", "MB", megabytes(p.bytes_total));
      progress->begin(megabytes(p.bytes_done));
    }
    progress->update(megabytes(p.bytes_done),
                     fmt::format("{}, {}{}", base::count_text(p.documents, "document"),
                                 base::count_text(p.tokens, "token"),
                                 p.rejected > 0 ? fmt::format(", {} rejected", p.rejected) : ""));
  };
  const auto begin = std::chrono::steady_clock::now();
  const data::CorpusReport report = data::build_corpus(call.corpus);
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
  if (progress) progress->finish();
  const base::Json result = result_json(call, report, time.count());
  fmt::print("{}", args.wants_json() ? result.dump() + "\n" : result_text(call, result));
  return 0;
}

}  // namespace

Verb data_build_verb() {
  std::vector<Option> options = {
      {.name = "inputs",
       .kind = Kind::list,
       .help = "Files, folders, patterns, @list.txt, or - for stdin",
       .is_required = true},
      output_option(),
      {.name = "--tokenizer",
       .help = "tokenizer.json, a folder that has one, or a SentencePiece .model; default: one "
               "token per byte"},
      output_format(),
      overwrite_option(),
      workers_option()};
  for (Option& option : document_options()) options.push_back(std::move(option));
  const std::vector<Option> more = {
      {.name = "--eod",
       .help = "Token after each document, by id or name; -1: none. Default: the tokenizer's "
               "end-of-text token, with bytes 0"},
      {.name = "--bod", .help = "Token before each document, by id or name; default: none"},
      {.name = "--max-rejected",
       .kind = Kind::integer,
       .fallback = "-1",
       .help = "Fail if more documents are rejected; -1: any number"},
      {.name = "--vocab",
       .kind = Kind::integer,
       .help = "Inputs that are tokens: the size of their vocabulary"},
      {.name = "--input-type", .help = "Inputs that are tokens without a header: u16 or u32"},
      {.name = "--input-eod",
       .kind = Kind::integer,
       .fallback = "-1",
       .help = "Inputs that are tokens without an index: the token that ends documents; -1: none"}};
  options.insert(options.end(), more.begin(), more.end());
  return {.name = "data build",
          .summary = "Convert documents to tokens",
          .details =
              "Reads .txt, .jsonl, .tar (WebDataset), MDS and token files, also with .gz or .zst.\n"
              "Bad documents are rejected and listed in PREFIX.rejected.jsonl. A build that was\n"
              "killed continues when it is repeated with the same options.\n\n"
              "Examples:\n"
              "  trireme data build book.txt --output runs/book\n"
              "  trireme data build a.jsonl b.jsonl --output corpus --key text --workers 4\n"
              "  trireme data build a.jsonl --output runs/tokens --tokenizer model/tokenizer.json "
              "--eod '<|endoftext|>'\n"
              "  trireme data build chats.jsonl --output runs/chats --prompt-key question "
              "--completion-key answer",
          .options = std::move(options),
          .run = run_build};
}

}  // namespace trireme::cli
