// SPDX-License-Identifier: Apache-2.0
// trireme data convert: a data set of tokens in another format.
#include <fmt/format.h>

#include "base/text/count_text.h"
#include "base/text/json.h"
#include "cli/data/data_options.h"
#include "cli/data/data_verbs.h"
#include "cli/shell/progress.h"
#include "data/convert_set.h"
#include "data/corpus/counts.h"

namespace trireme::cli {
namespace {

int run_convert(const Args& args) {
  check_output(args);
  Progress progress("data convert", "tokens", 0);
  const data::ConvertedSet set = data::convert_set(
      {.from = args.text("data"),
       .open = {.format = data::token_format_from_name(args.text("--from-format")),
                .type = args.text("--from-type"),
                .end_of_document = args.small_integer("--eod")},
       .to = args.text("--output"),
       .format = data::token_format_from_name(args.text("--format")),
       .vocab = args.integer("--vocab"),
       .type = args.text("--type"),
       .progress = [&progress](int64_t done, int64_t) { progress.update(done); }});
  progress.finish();
  const data::ConvertReport& report = set.report;
  if (args.wants_json()) {
    base::Json files = base::Json::array();
    for (const auto& file : set.files) files.push_back(data::json_name(file));
    fmt::print("{}\n", base::Json{{"ok", true},
                                  {"documents", report.documents},
                                  {"tokens", report.tokens},
                                  {"vocab", report.vocab},
                                  {"type", std::string(name_of(report.type))},
                                  {"loses_borders", report.loses_borders},
                                  {"has_mask", set.has_mask},
                                  {"has_tokenizer", set.has_tokenizer},
                                  {"has_manifest", set.has_manifest},
                                  {"files", files},
                                  {"output", args.text("--output")}}
                           .dump());
    return 0;
  }
  fmt::print("{}: {}, {} (vocabulary {}, stored as {})\n", args.text("--output"),
             base::count_text(report.documents, "document"),
             base::count_text(report.tokens, "token"), report.vocab, name_of(report.type));
  for (const auto& file : set.files) fmt::print("  file       {}\n", file.string());
  if (report.loses_borders) {
    fmt::print(
        "  warning    this format has no index: documents end only where a token shows it\n");
  }
  return 0;
}

}  // namespace

Verb data_convert_verb() {
  return {
      .name = "data convert",
      .summary = "Rewrite a data set of tokens in another format",
      .details =
          "The loss mask, the tokenizer and the manifest come along. Documents become tokens by\n"
          "data build.\n\n"
          "Examples:\n"
          "  trireme data convert runs/book --output runs/book-llmc --format llmc\n"
          "  trireme data convert train.bin --from-type u16 --eod 50256 --output runs/train",
      .options = {{.name = "data",
                   .help = "Data set: a file, or the prefix of .bin and .idx",
                   .is_required = true},
                  output_option(),
                  output_format(),
                  overwrite_option(),
                  {.name = "--from-format",
                   .fallback = "auto",
                   .help = "Format of the data set that is read",
                   .choices = {"auto", "megatron", "llmc", "nanogpt"}},
                  {.name = "--from-type",
                   .help = "Token type of a file without a header: u16 or u32"},
                  {.name = "--eod",
                   .kind = Kind::integer,
                   .fallback = "-1",
                   .help = "Token that ends a document, in formats without an index; -1: none"},
                  {.name = "--vocab",
                   .kind = Kind::integer,
                   .fallback = "0",
                   .help = "Size of the vocabulary, which decides the type; 0: that of the "
                           "manifest, or without one the largest token + 1, found by a pass over "
                           "all tokens"},
                  {.name = "--type",
                   .help = "Type to store: u16 or i32 (megatron), u16 or u32 (others); default: "
                           "the smallest for the vocabulary"}},
      .run = run_convert};
}

}  // namespace trireme::cli
