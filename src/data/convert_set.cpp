// SPDX-License-Identifier: Apache-2.0
#include "data/convert_set.h"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "base/text/json.h"
#include "data/corpus/counts.h"
#include "data/corpus/publish.h"
#include "data/corpus/work_folder.h"
#include "data/files/output_file.h"
#include "data/mask.h"
#include "data/tokenizer_beside.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;
using base::ConfigError;
using base::IoError;
using base::Json;

fs::path with_suffix(fs::path path, const char* suffix) {
  path += suffix;
  return path;
}

// Documents have no tokens yet.
void check_no_documents(const fs::path& from) {
  std::error_code ignored;
  const std::string name = from.filename().string();
  constexpr std::string_view ends[] = {".txt", ".jsonl", ".ndjson", ".json", ".gz",
                                       ".zst", ".zstd",  ".tar",    ".tgz",  ".parquet"};
  const bool is_document = std::any_of(std::begin(ends), std::end(ends),
                                       [&](std::string_view end) { return name.ends_with(end); });
  if (is_document || fs::is_directory(from, ignored)) {
    throw ConfigError(
        fmt::format("{}: data convert rewrites tokens: a Megatron pair, an llm.c or nanoGPT .bin; "
                    "documents become tokens by `trireme data build`",
                    from.string()));
  }
}

void copy_into(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::copy_file(from, to, fs::copy_options::overwrite_existing, error);
  if (error) {
    throw IoError(fmt::format("{}: cannot be written: {}", to.string(), error.message()));
  }
}

void rename_in(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error) {
    throw IoError(fmt::format("{}: cannot be written: {}", to.string(), error.message()));
  }
}

// Returns the size of the vocabulary that the tokens were built with, 0 if it is not known.
int64_t vocab_by_manifest(const Json& manifest) {
  const Json tokenizer = manifest.value("tokenizer", Json());
  if (!tokenizer.is_object()) return 0;
  const Json vocab = tokenizer.value("vocab", Json());
  return vocab.is_number_integer() ? std::max<int64_t>(vocab.get<int64_t>(), 0) : 0;
}

class SetConversion {
 public:
  explicit SetConversion(const ConvertOptions& options)
      : options_(options), prefix_(corpus_prefix(options.to)) {}

  ConvertedSet run() {
    check_no_documents(options_.from);
    const auto data = open_tokens(options_.from, options_.open);
    set_.has_mask = open_mask(options_.from, *data) != nullptr;
    tokenizer_ = tokenizer_beside(options_.from);
    set_.has_tokenizer = tokenizer_.has_value();
    manifest_ = manifest_beside(options_.from);
    set_.has_manifest = manifest_.has_value();
    check_not_replaced(*data);
    check_replaceable_tokenizer(tokenizer_folder_of(prefix_));
    // A conversion is repeated as a whole: nothing identifies an unfinished one.
    WorkFolder folder(work_folder_of(prefix_), Json{{"convert", options_.from.string()}}, true);
    folder.discard();
    try {
      write(folder);
    } catch (...) {
      folder.remove();
      throw;
    }
    set_.files = publish(folder, finished_, prefix_);
    return std::move(set_);
  }

 private:
  void check_not_replaced(const TokenData& data) const {
    for (const MappedFile& file : data.files()) {
      for (const fs::path& target : token_files_of_both()) {
        std::error_code ignored;
        if (fs::equivalent(target, file.path(), ignored)) {
          throw ConfigError(fmt::format("{}: is read and would be replaced; give another output",
                                        target.string()));
        }
      }
    }
  }
  std::vector<fs::path> token_files_of_both() const {
    return {with_suffix(prefix_, ".bin"), with_suffix(prefix_, ".idx")};
  }

  void write(WorkFolder& folder) {
    ConvertOptions inside = options_;
    inside.to = folder.path() / "converted";
    if (inside.vocab == 0 && manifest_) inside.vocab = vocab_by_manifest(*manifest_);
    set_.report = convert_tokens(inside);
    rename_in(folder.path() / "converted.bin", folder.path() / "tokens");
    if (options_.format == TokenFormat::megatron) {
      rename_in(folder.path() / "converted.idx", folder.path() / "index");
    }
    if (set_.has_mask) {
      const fs::path mask = with_suffix(data_prefix(options_.from), ".mask");
      copy_into(with_suffix(mask, ".bin"), folder.path() / "mask");
      copy_into(with_suffix(mask, ".idx"), folder.path() / "mask.idx");
    }
    if (tokenizer_) copy_tokenizer_folder(folder.path() / "tokenizer");
    if (manifest_) write_manifest(folder.path() / "manifest.json");
    finished_ = {.format = options_.format,
                 .type = set_.report.type,
                 .tokens = set_.report.tokens,
                 .has_mask = set_.has_mask,
                 .has_rejected = false,
                 .has_tokenizer = set_.has_tokenizer,
                 .has_manifest = set_.has_manifest};
  }

  // The main file first, which the copy names by its kind.
  void copy_tokenizer_folder(const fs::path& to) const {
    std::vector<fs::path> files;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(*tokenizer_, error)) {
      if (entry.is_regular_file(error)) files.push_back(entry.path());
    }
    const auto rank = [](const fs::path& file) {
      const fs::path name = file.filename();
      return name == "tokenizer.json" ? 0 : name == "tokenizer.model" ? 1 : 2;
    };
    std::sort(files.begin(), files.end(), [&](const fs::path& a, const fs::path& b) {
      return std::pair(rank(a), a) < std::pair(rank(b), b);
    });
    copy_tokenizer(files, to);
  }

  void write_manifest(const fs::path& file) {
    Json& manifest = *manifest_;
    manifest["type"] = std::string(name_of(set_.report.type));
    if (manifest.contains("options") && manifest["options"].is_object()) {
      manifest["options"]["format"] = std::string(name_of(options_.format));
    }
    if (set_.has_tokenizer && manifest.contains("tokenizer") && manifest["tokenizer"].is_object()) {
      manifest["tokenizer"]["folder"] = json_name(tokenizer_folder_of(prefix_).filename());
    }
    manifest["converted_from"] = json_name(options_.from);
    const std::string text = manifest.dump(1) + "\n";
    OutputFile out(file);
    out.append(std::as_bytes(std::span(text)));
    out.sync();
    out.rename();
  }

  const ConvertOptions& options_;
  fs::path prefix_;
  std::optional<fs::path> tokenizer_;
  std::optional<Json> manifest_;
  FinishedCorpus finished_;
  ConvertedSet set_;
};

}  // namespace

ConvertedSet convert_set(const ConvertOptions& options) { return SetConversion(options).run(); }

}  // namespace trireme::data
