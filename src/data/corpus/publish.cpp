// SPDX-License-Identifier: Apache-2.0
#include "data/corpus/publish.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <system_error>

#include "base/error.h"
#include "base/log.h"
#include "base/system/durable_file.h"
#include "base/text/json.h"
#include "data/corpus/megatron_index_file.h"
#include "data/files/layouts.h"
#include "data/files/mapped_file.h"
#include "data/files/output_file.h"
#include "data/tokenizer_beside.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;
using base::IoError;

// A file of the work folder and the end of its final name, in the order of renaming.
struct FinalFile {
  const char* work;
  const char* end;
};

std::vector<FinalFile> final_files(const FinishedCorpus& corpus) {
  std::vector<FinalFile> files = {{"tokens", ".bin"}};
  if (corpus.has_mask) {
    files.push_back({"mask", ".mask.bin"});
    files.push_back({"mask.idx", ".mask.idx"});
  }
  if (corpus.has_rejected) files.push_back({"rejected.jsonl", ".rejected.jsonl"});
  if (corpus.has_tokenizer) files.push_back({"tokenizer", ".tokenizer"});
  if (corpus.format == TokenFormat::megatron) files.push_back({"index", ".idx"});
  if (corpus.has_manifest) files.push_back({"manifest.json", ".manifest.json"});
  return files;
}

fs::path with_end(fs::path prefix, const char* end) {
  prefix += end;
  return prefix;
}

// Moves a folder into the work folder, with which it is removed: it is complete or not there.
void discard_folder(const fs::path& folder, const fs::path& work) {
  std::error_code error;
  if (!fs::is_directory(fs::symlink_status(folder, error))) return;
  fs::remove_all(work / "old_tokenizer", error);
  fs::rename(folder, work / "old_tokenizer", error);
  if (error) {
    throw IoError(fmt::format("{}: cannot be replaced: {}; the finished data set is in {}",
                              folder.string(), error.message(), work.string()));
  }
}

void write_llmc_header(WorkFolder& folder, const FinishedCorpus& corpus) {
  constexpr int64_t max_tokens = std::numeric_limits<int32_t>::max();
  if (corpus.tokens > max_tokens) {
    throw IoError(fmt::format(
        "{}: {} tokens; an llm.c file holds at most {}: write the format megatron or nanogpt",
        folder.path().string(), corpus.tokens, max_tokens));
  }
  const LlmcKind& kind = llmc_kinds[corpus.type == TokenType::u16 ? 0 : 1];
  const std::array<int32_t, 3> header = {kind.magic, kind.version,
                                         static_cast<int32_t>(corpus.tokens)};
  folder.file(WorkFile::tokens).write_at(0, std::as_bytes(std::span(header)));
}

}  // namespace

fs::path corpus_prefix(const fs::path& output) {
  fs::path prefix = data_prefix(output);
  if (!prefix.has_filename()) {
    throw base::ConfigError(fmt::format(
        "'{}' names no file; the output is a prefix of .bin, such as data/book", output.string()));
  }
  return prefix;
}

void complete(WorkFolder& folder, const FinishedCorpus& corpus, const base::Json& manifest,
              std::vector<ShardRecord> shards) {
  if (corpus.format == TokenFormat::llmc) write_llmc_header(folder, corpus);
  folder.file(WorkFile::lengths).sync();
  {
    const MappedFile lengths(folder.path() / "lengths");
    if (corpus.format == TokenFormat::megatron) {
      write_megatron_index(folder.path() / "index",
                           {.lengths = lengths.bytes(), .type = corpus.type});
    }
    if (corpus.has_mask) {
      write_megatron_index(folder.path() / "mask.idx",
                           {.lengths = lengths.bytes(), .type = TokenType::u8});
    }
  }
  const std::string text = manifest.dump(1) + "\n";
  OutputFile file(folder.path() / "manifest.json");
  file.append(std::as_bytes(std::span(text)));
  file.sync();
  file.rename();
  folder.commit(std::move(shards), true);
}

std::vector<fs::path> publish(WorkFolder& folder, const FinishedCorpus& corpus,
                              const fs::path& prefix) {
  const std::vector<FinalFile> files = final_files(corpus);
  std::error_code error;
  // Files of an earlier data set go first, those that describe others before those described.
  for (const char* end :
       {".manifest.json", ".idx", ".mask.idx", ".mask.bin", ".rejected.jsonl", ".tokenizer"}) {
    const auto found = std::find_if(files.begin(), files.end(), [&](const FinalFile& file) {
      return std::string_view(file.end) == end;
    });
    const bool is_renamed = found != files.end() && !fs::exists(folder.path() / found->work, error);
    if (is_renamed) continue;
    if (std::string_view(end) == ".tokenizer") {
      discard_folder(with_end(prefix, end), folder.path());
    } else {
      fs::remove(with_end(prefix, end), error);
    }
  }
  std::vector<fs::path> written;
  for (const FinalFile& file : files) {
    const fs::path from = folder.path() / file.work, to = with_end(prefix, file.end);
    if (fs::exists(from, error)) {
      fs::rename(from, to, error);
      if (error) {
        throw IoError(fmt::format("{}: cannot be written: {}; the finished data set is in {}",
                                  to.string(), error.message(), folder.path().string()));
      }
    }
    written.push_back(to);
  }
  try {
    base::sync_folder(prefix.has_parent_path() ? prefix.parent_path() : fs::path("."));
  } catch (const std::system_error& failure) {  // not every file system can sync a folder
    base::log_warning("{}: a power cut may undo the renaming of its files: {}", prefix.string(),
                      failure.what());
  }
  folder.remove();
  return written;
}

}  // namespace trireme::data
