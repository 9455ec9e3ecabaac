// SPDX-License-Identifier: Apache-2.0
#include "train/batches/run_tokenizer.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>

#include "base/error.h"
#include "base/text/json.h"
#include "data/tokenizer_beside.h"
#include "text/token_bytes.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* bytes_fingerprint = "bytes";

// The tokenizer that a data set names.
struct BuiltWith {
  std::string data;         // its path
  std::string fingerprint;  // "bytes": tokens are bytes
  std::optional<fs::path> folder;
};

std::optional<BuiltWith> built_with(const DataSource& source) {
  if (source.data().format() == data::TokenFormat::text) {
    return BuiltWith{source.path(), bytes_fingerprint, {}};
  }
  const std::optional<base::Json> manifest = data::manifest_beside(source.path());
  if (!manifest) return std::nullopt;
  const auto options = manifest->find("options");
  if (options == manifest->end() || !options->is_object()) return std::nullopt;
  const std::string fingerprint = options->value("tokenizer", "");
  if (fingerprint.empty()) return std::nullopt;
  return BuiltWith{source.path(), fingerprint, data::tokenizer_beside(source.path())};
}

std::vector<BuiltWith> all_built_with(const DataSets& data) {
  std::vector<BuiltWith> all;
  for (const auto* sources : {&data.sources(), &data.validation_sources()}) {
    for (const DataSource& source : *sources) {
      if (auto one = built_with(source)) all.push_back(*std::move(one));
    }
  }
  return all;
}

void check_same(const std::vector<BuiltWith>& all) {
  for (const BuiltWith& one : all) {
    if (one.fingerprint == all.front().fingerprint) continue;
    throw base::ConfigError(fmt::format(
        "{} was built with the tokenizer {}, {} with {}: one model cannot learn both; build them "
        "with one tokenizer",
        all.front().data, all.front().fingerprint, one.data, one.fingerprint));
  }
}

std::string content_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  if (!file.is_open() || file.bad()) {
    throw base::IoError(fmt::format("{}: cannot be read", path.string()));
  }
  return bytes;
}

bool holds_tokenizer(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / "tokenizer.json", ignored) ||
         fs::exists(folder / "tokenizer.model", ignored);
}

// Returns where the run's tokenizer is; empty: none is known.
fs::path place_of(const config::Config& c, const std::vector<BuiltWith>& all) {
  if (!c.training.tokenizer.empty()) return c.training.tokenizer;
  for (const BuiltWith& one : all) {
    if (one.folder) return *one.folder;
  }
  if (all.empty() && !c.training.init_from.empty() && holds_tokenizer(c.training.init_from)) {
    return c.training.init_from;
  }
  return {};
}

}  // namespace

void RunTokenizer::read(const fs::path& path, int64_t vocab) {
  const std::unique_ptr<text::Tokenizer> tokenizer = text::open_tokenizer(path);
  if (tokenizer->vocab_size() > vocab) {
    throw base::ConfigError(
        fmt::format("{}: the tokenizer has ids up to {}, and the model has a vocabulary of {}; "
                    "set model.vocab_size to at least {}",
                    path.string(), tokenizer->vocab_size() - 1, vocab, tokenizer->vocab_size()));
  }
  fingerprint_ = tokenizer->fingerprint();
  token_bytes_ = text::token_bytes(*tokenizer);
  const std::vector<fs::path>& files = tokenizer->files();
  for (size_t i = 0; i < files.size(); ++i) {
    files_.push_back({data::tokenizer_file_name(files, i), content_of(files[i])});
  }
  description_ = fmt::format("{}, {} tokens, {}", path.string(), tokenizer->vocab_size(),
                             fingerprint_.substr(0, 12));
}

RunTokenizer open_run_tokenizer(const config::Config& c, const DataSets& data, int64_t vocab) {
  const std::vector<BuiltWith> all = all_built_with(data);
  check_same(all);
  RunTokenizer result;
  const fs::path place = place_of(c, all);
  if (!place.empty()) result.read(place, vocab);
  for (const BuiltWith& one : all) {
    if (place.empty() || one.fingerprint == result.fingerprint_) continue;
    throw base::ConfigError(
        fmt::format("{} was built with the tokenizer {}, and {} is {}; give the tokenizer of the "
                    "data, or build "
                    "the data again",
                    one.data, one.fingerprint, place.string(), result.fingerprint_));
  }
  const bool are_bytes = !all.empty() && all.front().fingerprint == bytes_fingerprint;
  if (place.empty() && are_bytes) {
    result.token_bytes_.assign(static_cast<size_t>(vocab), 0);
    std::fill_n(result.token_bytes_.begin(), std::min<int64_t>(vocab, 256), 1);
  } else if (place.empty() && !all.empty()) {
    result.fingerprint_ = all.front().fingerprint;  // its files are not beside the data any more
  }
  return result;
}

}  // namespace trireme::train
