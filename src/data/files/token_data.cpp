// SPDX-License-Identifier: Apache-2.0
#include "data/files/token_data.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <system_error>

#include "base/check.h"
#include "base/error.h"
#include "base/sha256.h"
#include "base/text/json.h"
#include "data/files/layouts.h"
#include "data/files/utf8.h"
#include "data/tokenizer_beside.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;
using base::ConfigError;
using base::IoError;

constexpr std::array<std::string_view, 6> format_names = {"auto",    "megatron", "llmc",
                                                          "nanogpt", "text",     "memory"};

fs::path with_extension(const fs::path& path, std::string_view extension);
// Throws ConfigError if neither the path nor one of its .bin and .idx exists.
void expect_found(const fs::path& path);
fs::path token_file(const fs::path& path);
TokenFormat detect(const fs::path& path, const OpenOptions&);
std::string type_by_manifest(const fs::path& path);
TokenData::Parts open_megatron(const fs::path& path);
TokenData::Parts open_llmc(const fs::path& path);
TokenData::Parts open_bare(const fs::path& path, const OpenOptions&);
TokenData::Parts open_text(const fs::path& path, const OpenOptions&);

}  // namespace

std::string_view name_of(TokenFormat format) { return format_names[static_cast<size_t>(format)]; }

TokenFormat token_format_from_name(std::string_view name) {
  for (size_t i = 0; i + 1 < format_names.size(); ++i) {
    if (format_names[i] == name) return static_cast<TokenFormat>(i);
  }
  throw ConfigError(fmt::format(
      "'{}' is not a token format; allowed: auto, megatron, llmc, nanogpt, text", name));
}

TokenData::TokenData(Parts parts) : parts_(std::move(parts)) {
  TRIREME_CHECK(parts_.documents != nullptr, "{}: no documents", parts_.tokens.name);
}

std::string TokenData::description() const {
  return fmt::format("{}: {} tokens ({}, {})", name(), tokens(), name_of(format()),
                     name_of(type()));
}

std::string TokenData::changed() const {
  std::string all;
  for (const MappedFile& file : files()) {
    const std::string one = file.changed();
    if (!one.empty()) all += (all.empty() ? "" : "; ") + one;
  }
  return all;
}

std::unique_ptr<TokenData> open_tokens(const fs::path& path, const OpenOptions& options) {
  if (options.end_of_document < -1) {
    throw ConfigError(
        fmt::format("{}: end-of-document token {}; allowed: a token id, or -1 for none",
                    path.string(), options.end_of_document));
  }
  expect_found(path);
  const TokenFormat format =
      options.format == TokenFormat::automatic ? detect(path, options) : options.format;
  TokenData::Parts parts;
  switch (format) {
    case TokenFormat::megatron:
      parts = open_megatron(path);
      break;
    case TokenFormat::llmc:
      parts = open_llmc(token_file(path));
      break;
    case TokenFormat::nanogpt:
      parts = open_bare(token_file(path), options);
      break;
    case TokenFormat::text:
      parts = open_text(path, options);
      break;
    case TokenFormat::memory:
    case TokenFormat::automatic:
      throw ConfigError(
          fmt::format("{}: '{}' is not the format of a file", path.string(), name_of(format)));
  }
  parts.format = format;
  if (!parts.documents) {
    parts.documents = options.end_of_document < 0
                          ? one_document(parts.tokens.size())
                          : documents_ending_with(options.end_of_document, parts.tokens);
  }
  return std::make_unique<TokenData>(std::move(parts));
}

std::unique_ptr<TokenData> tokens_in_memory(std::vector<int32_t> tokens, int32_t end_of_document) {
  TokenData::Parts parts;
  parts.memory = std::move(tokens);
  parts.tokens = {std::as_bytes(std::span(parts.memory)), TokenType::i32, "tokens in memory"};
  parts.documents = end_of_document < 0 ? one_document(parts.tokens.size())
                                        : documents_ending_with(end_of_document, parts.tokens);
  return std::make_unique<TokenData>(std::move(parts));
}

uint64_t fingerprint(const TokenData& data) {
  constexpr int64_t samples = 64, sample_tokens = 256;
  base::Sha256 hash;
  const int64_t tokens = data.tokens();
  hash.update(std::as_bytes(std::span(&tokens, 1)));
  std::array<int32_t, sample_tokens> chunk;
  const int64_t chunks = std::min(samples, (tokens + sample_tokens - 1) / sample_tokens);
  const bool is_long = tokens > samples * sample_tokens;
  const int64_t spread = is_long ? (tokens - sample_tokens) / (samples - 1) : sample_tokens;
  for (int64_t i = 0; i < chunks; ++i) {
    // In a long stream, the last sample ends at its end.
    const int64_t begin = is_long && i + 1 == chunks ? tokens - sample_tokens : i * spread;
    const auto part =
        std::span(chunk).first(static_cast<size_t>(std::min(sample_tokens, tokens - begin)));
    data.read(begin, part);
    hash.update(std::as_bytes(part));
  }
  const std::string hex = hash.hex();
  uint64_t value = 0;
  std::from_chars(hex.data(), hex.data() + 16, value, 16);
  return value;
}

namespace {

// Returns `path` with `extension` replacing .bin or .idx, or appended to a name that has neither.
fs::path with_extension(const fs::path& path, std::string_view extension) {
  const auto found = path.extension();
  fs::path result = path;
  if (found == ".bin" || found == ".idx") {
    result.replace_extension(extension);
  } else {
    result += extension;
  }
  return result;
}

bool path_exists(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool is_token_file(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored) && !fs::is_directory(path, ignored);
}

// Returns PATH.bin if only that is a file, otherwise `path`.
fs::path token_file(const fs::path& path) {
  const fs::path bin = with_extension(path, ".bin");
  return !is_token_file(path) && is_token_file(bin) ? bin : path;
}

// Not an IoError: another start would not find the data either.
ConfigError no_data_set(const fs::path& path) {
  if (path_exists(path)) {
    return ConfigError(fmt::format("{}: is a folder, not a data set", path.string()));
  }
  const fs::path bin = with_extension(path, ".bin");
  if (bin == path) return ConfigError(fmt::format("{}: does not exist", path.string()));
  return ConfigError(fmt::format("{}: does not exist, and neither do {} and {}", path.string(),
                                 bin.string(), with_extension(path, ".idx").string()));
}

void expect_found(const fs::path& path) {
  for (const fs::path& one : {path, with_extension(path, ".bin"), with_extension(path, ".idx")}) {
    if (path_exists(one)) return;
  }
  throw no_data_set(path);
}

TokenFormat detect(const fs::path& path, const OpenOptions& options) {
  const fs::path index = with_extension(path, ".idx"), file = token_file(path);
  const auto extension = path.extension();
  if (extension == ".idx") return TokenFormat::megatron;
  if (!is_token_file(file)) {
    if (path_exists(index)) return TokenFormat::megatron;
    throw no_data_set(path);
  }
  if (file != path && path_exists(index)) return TokenFormat::megatron;
  if (file == path && extension == ".txt") return TokenFormat::text;
  if (file == path && (extension == ".jsonl" || extension == ".json")) {
    throw IoError(fmt::format("{}: JSON is not read directly; make tokens of it with `data build`",
                              path.string()));
  }
  if (has_llmc_magic(MappedFile(file).bytes())) return TokenFormat::llmc;
  if (path_exists(index)) return TokenFormat::megatron;
  if (!options.type.empty() || !type_by_manifest(file).empty()) return TokenFormat::nanogpt;
  throw IoError(fmt::format(
      "{}: has no header that is known (llm.c), no index beside it (Megatron's {}) and no manifest "
      "of data build; bare tokens need their type (--type u16 or u32; in a configuration "
      "training.dataset_format = nanogpt and dataset_dtype), text needs --format text "
      "(training.dataset_format = text)",
      file.string(), index.filename().string()));
}

// Returns the type of the bare tokens `path` by the manifest beside them, which data build and data
// convert write; "" if there is none.
std::string type_by_manifest(const fs::path& path) {
  const auto manifest = manifest_beside(path);
  if (!manifest) return "";
  const base::Json options = manifest->value("options", base::Json());
  const base::Json type = manifest->value("type", base::Json());
  const bool is_bare = options.is_object() && options.value("format", base::Json()) == "nanogpt";
  return is_bare && type.is_string() ? type.get<std::string>() : "";
}

TokenData::Parts open_megatron(const fs::path& path) {
  TokenData::Parts parts;
  const fs::path index_path = with_extension(path, ".idx"), bin_path = with_extension(path, ".bin");
  parts.files.emplace_back(bin_path);
  parts.files.emplace_back(index_path);
  const auto bin = parts.files[0].bytes();
  const MegatronIndex index = parse_megatron_index(
      parts.files[1].bytes(), static_cast<int64_t>(bin.size()), index_path.string());
  parts.tokens = {bin, index.type, bin_path.string()};
  parts.documents = indexed_documents(index);
  return parts;
}

TokenData::Parts open_llmc(const fs::path& path) {
  TokenData::Parts parts;
  parts.files.emplace_back(path);
  parts.tokens = parse_llmc(parts.files[0].bytes(), path.string());
  return parts;
}

TokenData::Parts open_bare(const fs::path& path, const OpenOptions& options) {
  const std::string built_as = type_by_manifest(path);
  const std::string type_name = options.type.empty() ? built_as : options.type;
  if (type_name.empty()) {
    throw ConfigError(
        fmt::format("{}: bare tokens need their type: --type u16 or u32 (training.dataset_dtype)",
                    path.string()));
  }
  const TokenType type = token_type_from_name(type_name);
  if (!built_as.empty() && token_type_from_name(built_as) != type) {
    throw ConfigError(fmt::format(
        "{}: is to be read as {}, but was written as {} (manifest.json beside it); leave the "
        "type open or give {} (--type, training.dataset_dtype)",
        path.string(), type_name, built_as, built_as));
  }
  TokenData::Parts parts;
  parts.files.emplace_back(path);
  const auto bytes = parts.files[0].bytes();
  if (bytes.size() % static_cast<size_t>(size_of(type)) != 0) {
    throw IoError(fmt::format("{}: {} bytes are not a whole number of {} tokens", path.string(),
                              bytes.size(), name_of(type)));
  }
  parts.tokens = {bytes, type, path.string()};
  return parts;
}

TokenData::Parts open_text(const fs::path& path, const OpenOptions& options) {
  TokenData::Parts parts;
  parts.files.emplace_back(path);
  parts.tokens = {parts.files[0].bytes(), TokenType::u8, path.string()};
  if (options.raw_bytes) return parts;
  std::span<const std::byte>& bytes = parts.tokens.bytes;
  check_utf8_file(bytes, parts.tokens.name);
  const auto mark = std::as_bytes(std::span(byte_order_mark));
  if (bytes.size() >= mark.size() && std::ranges::equal(bytes.first(mark.size()), mark)) {
    bytes = bytes.subspan(mark.size());
  }
  return parts;
}

}  // namespace
}  // namespace trireme::data
