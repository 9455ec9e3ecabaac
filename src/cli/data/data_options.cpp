// SPDX-License-Identifier: Apache-2.0
#include "cli/data/data_options.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "data/corpus/publish.h"
#include "data/corpus/work_folder.h"
#include "data/files/token_writer.h"

namespace trireme::cli {

Option output_option() {
  return {.name = "--output",
          .help = "Data set to write: PREFIX (for .bin and .idx) or FILE.bin",
          .is_required = true};
}

Option output_format() {
  return {.name = "--format",
          .fallback = "megatron",
          .help = "Format to write",
          .choices = {"megatron", "llmc", "nanogpt"}};
}

Option overwrite_option() {
  return {
      .name = "--overwrite", .kind = Kind::flag, .help = "Replace the output if it already exists"};
}

Option workers_option() {
  return {.name = "--workers",
          .kind = Kind::integer,
          .fallback = "0",
          .help = "Number of threads; 0: all cores. The output does not depend on it"};
}

std::vector<Option> document_options() {
  return {{.name = "--kind",
           .fallback = "auto",
           .help = "Kind of all inputs; auto: by their names",
           .choices = {"auto", "text", "jsonl", "tar", "mds", "tokens"}},
          {.name = "--key",
           .fallback = "text",
           .help = "Field of the text: a key such as text or meta.text, or a column of MDS"},
          {.name = "--prompt-key",
           .help = "Field of a prompt, instead of --key: it is read, but no loss is taken on it"},
          {.name = "--completion-key", .help = "Field of the completion of a prompt"},
          {.name = "--split-lines",
           .kind = Kind::flag,
           .help = "Treat every line of a text file as a document"},
          {.name = "--raw-bytes",
           .kind = Kind::flag,
           .help = "Accept bytes in text files that are not UTF-8"},
          {.name = "--max-document-bytes",
           .kind = Kind::integer,
           .fallback = "268435456",
           .help = "Reject longer documents"}};
}

std::vector<Option> data_set_options() {
  return {{.name = "data",
           .help = "Data set: a file, or the prefix of .bin and .idx",
           .is_required = true},
          {.name = "--format",
           .fallback = "auto",
           .help = "Format of the data set",
           .choices = {"auto", "megatron", "llmc", "nanogpt", "text"}},
          {.name = "--type", .help = "Token type of files without a header: u16 or u32"},
          {.name = "--eod",
           .kind = Kind::integer,
           .fallback = "-1",
           .help = "Token that ends a document, in formats without an index; -1: none"}};
}

void check_output(const Args& args) {
  const auto format = data::token_format_from_name(args.text("--format"));
  if (args.flag("--overwrite")) return;
  for (const std::filesystem::path& file : data::token_files(args.text("--output"), format)) {
    std::error_code ignored;
    if (!std::filesystem::exists(file, ignored)) continue;
    // A build that was killed while it renamed its files is completed by the same call.
    if (data::has_complete_build(data::corpus_prefix(args.text("--output")))) return;
    throw base::ConfigError(fmt::format(
        "{}: already exists; give --overwrite to replace it, or another --output", file.string()));
  }
}

data::DocumentOptions documents_of(const Args& args) {
  const std::string prompt = args.text("--prompt-key"), completion = args.text("--completion-key");
  if (prompt.empty() != completion.empty()) {
    throw base::ConfigError(
        "--prompt-key and --completion-key belong together; with one text per document give --key");
  }
  return {.text_field = args.text("--key"),
          .prompt_field = prompt,
          .completion_field = completion,
          .split_lines = args.flag("--split-lines"),
          .raw_bytes = args.flag("--raw-bytes"),
          .max_document_bytes = args.integer("--max-document-bytes")};
}

data::OpenOptions open_options_of(const Args& args) {
  return {.format = data::token_format_from_name(args.text("--format")),
          .type = args.text("--type"),
          .end_of_document = args.small_integer("--eod")};
}

std::unique_ptr<data::TokenData> open_data_set(const Args& args) {
  return data::open_tokens(args.text("data"), open_options_of(args));
}

}  // namespace trireme::cli
