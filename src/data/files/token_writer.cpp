// SPDX-License-Identifier: Apache-2.0
#include "data/files/token_writer.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <system_error>

#include "base/check.h"
#include "base/error.h"
#include "data/files/layouts.h"
#include "data/files/output_file.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;
using base::ConfigError;
using base::IoError;

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

// Returns the path with the extension, replacing .bin or .idx at its end.
fs::path named(fs::path path, std::string_view extension) {
  if (path.extension() == ".bin" || path.extension() == ".idx") path.replace_extension();
  path += extension;
  return path;
}

class MegatronWriter final : public TokenWriter {
 public:
  MegatronWriter(const fs::path& path, const WriteOptions& options)
      : TokenWriter(stored_type(options.format, options.vocab), options.vocab),
        bin_(named(path, ".bin")),
        index_(named(path, ".idx")),
        max_sequence_tokens_(options.max_sequence_tokens) {
    // The counts are filled in at the end.
    const std::array<std::byte, megatron_header_bytes> header{};
    index_.append(header);
  }

 private:
  void store(std::span<const std::byte> stored, int64_t tokens) override {
    bin_.append(stored);
    open_tokens_ += tokens;
    while (open_tokens_ > max_sequence_tokens_) {
      end_sequence(max_sequence_tokens_);
      extra_sequences_.push_back(documents());
    }
  }

  void store_border() override { end_sequence(open_tokens_); }

  void publish() override {
    const int64_t entries = documents() + 1;
    append_pointers();
    append_documents();
    std::array<std::byte, megatron_header_bytes> header{};
    std::memcpy(header.data(), megatron_magic.data(), megatron_magic.size());
    std::memcpy(&header[9], &megatron_version, 8);
    header[17] = std::byte{megatron_code(type())};
    std::memcpy(&header[18], &sequences_, 8);
    std::memcpy(&header[26], &entries, 8);
    index_.write_at(0, header);
    bin_.sync();
    index_.sync();
    // At no moment is an index on disk beside tokens that do not belong to it.
    std::error_code error;
    fs::remove(index_.path(), error);
    bin_.rename();
    try {
      index_.rename();
    } catch (...) {
      fs::remove(bin_.path(), error);
      throw;
    }
  }

  void end_sequence(int64_t tokens) {
    const auto length = static_cast<int32_t>(tokens);
    index_.append(bytes_of(length));
    open_tokens_ -= tokens;
    ++sequences_;
  }

  // Computed from the lengths, which are read back from the file, so that memory does not grow.
  void append_pointers() {
    std::array<int32_t, 8192> lengths;
    int64_t pointer = 0;
    for (int64_t at = 0; at < sequences_;) {
      const int64_t count = std::min<int64_t>(lengths.size(), sequences_ - at);
      const auto part = std::span(lengths).first(static_cast<size_t>(count));
      index_.read_at(static_cast<int64_t>(megatron_header_bytes) + at * 4,
                     std::as_writable_bytes(part));
      for (const int32_t length : part) {
        index_.append(bytes_of(pointer));
        pointer += length * size_of(type());
      }
      at += count;
    }
  }

  void append_documents() {
    size_t extra = 0;
    for (int64_t document = 0; document <= documents(); ++document) {
      while (extra < extra_sequences_.size() && extra_sequences_[extra] < document) ++extra;
      const int64_t first_sequence = document + static_cast<int64_t>(extra);
      index_.append(bytes_of(first_sequence));
    }
  }

  OutputFile bin_, index_;
  int64_t max_sequence_tokens_;
  int64_t open_tokens_ = 0;  // of the sequence being written
  int64_t sequences_ = 0;
  std::vector<int64_t> extra_sequences_;  // the document of every sequence beyond its first
};

class LlmcWriter final : public TokenWriter {
 public:
  LlmcWriter(const fs::path& path, const LlmcKind& kind, int64_t vocab)
      : TokenWriter(kind.type, vocab), file_(named(path, ".bin")), kind_(kind) {
    const std::array<std::byte, llmc_header_bytes> header{};
    file_.append(header);
  }

 private:
  void store(std::span<const std::byte> stored, int64_t tokens) override {
    constexpr int64_t most = std::numeric_limits<int32_t>::max();
    if (this->tokens() + tokens > most) {
      throw IoError(
          fmt::format("{}: an llm.c file holds at most {} tokens; write the format "
                      "megatron, or cut the input",
                      file_.path().string(), most));
    }
    file_.append(stored);
  }

  void store_border() override {}

  void publish() override {
    const std::array<int32_t, 3> header = {kind_.magic, kind_.version,
                                           static_cast<int32_t>(tokens())};
    file_.write_at(0, std::as_bytes(std::span(header)));
    file_.sync();
    file_.rename();
  }

  OutputFile file_;
  LlmcKind kind_;
};

class NanogptWriter final : public TokenWriter {
 public:
  NanogptWriter(const fs::path& path, const WriteOptions& options)
      : TokenWriter(stored_type(options.format, options.vocab), options.vocab),
        file_(named(path, ".bin")) {}

 private:
  void store(std::span<const std::byte> stored, int64_t /*tokens*/) override {
    file_.append(stored);
  }
  void store_border() override {}
  void publish() override {
    file_.sync();
    file_.rename();
  }

  OutputFile file_;
};

template <typename Stored>
void append_as(std::span<const int32_t> tokens, std::vector<std::byte>& out) {
  out.resize(tokens.size() * sizeof(Stored));
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto value = static_cast<Stored>(tokens[i]);
    std::memcpy(&out[i * sizeof(Stored)], &value, sizeof(Stored));
  }
}

}  // namespace

std::vector<fs::path> token_files(const fs::path& path, TokenFormat format) {
  if (format == TokenFormat::megatron) return {named(path, ".bin"), named(path, ".idx")};
  return {named(path, ".bin")};
}

void TokenWriter::write(std::span<const int32_t> tokens) {
  TRIREME_CHECK(!finished_, "write after finish");
  if (tokens.empty()) return;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= vocab_) {
      throw ConfigError(
          fmt::format("token {} (number {} of document {}) is not below the "
                      "vocabulary of {}",
                      tokens[i], tokens_ + static_cast<int64_t>(i), documents_, vocab_));
    }
  }
  if (type_ == TokenType::u16) {
    append_as<uint16_t>(tokens, stored_);
  } else {
    append_as<int32_t>(tokens, stored_);
  }
  store(stored_, static_cast<int64_t>(tokens.size()));
  tokens_ += static_cast<int64_t>(tokens.size());
  is_open_ = true;
}

void TokenWriter::end_document() {
  TRIREME_CHECK(!finished_, "end_document after finish");
  store_border();
  ++documents_;
  is_open_ = false;
}

void TokenWriter::finish() {
  TRIREME_CHECK(!finished_, "finished twice");
  if (is_open_) end_document();
  publish();
  finished_ = true;
}

TokenType stored_type(TokenFormat format, int64_t vocab) {
  constexpr int64_t max_vocab = int64_t{1} << 31;
  if (vocab < 1 || vocab > max_vocab) {
    throw ConfigError(fmt::format("a vocabulary of {}; allowed: 1 .. {}", vocab, max_vocab));
  }
  switch (format) {
    case TokenFormat::megatron:
      return vocab < 65500 ? TokenType::u16 : TokenType::i32;
    case TokenFormat::llmc:
    case TokenFormat::nanogpt:
      return vocab <= 65536 ? TokenType::u16 : TokenType::u32;
    default:
      break;
  }
  throw ConfigError(fmt::format("the format {} is not written; allowed: megatron, llmc, nanogpt",
                                name_of(format)));
}

std::unique_ptr<TokenWriter> write_tokens(const fs::path& path, const WriteOptions& options) {
  try {
    (void)stored_type(options.format, options.vocab);
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("{}: {}", path.string(), error.what()));
  }
  if (!path.has_filename()) {
    throw ConfigError(fmt::format(
        "'{}' names no file; the output is a prefix of .bin, such as data/book", path.string()));
  }
  TRIREME_CHECK(
      options.max_sequence_tokens >= 1 && options.max_sequence_tokens < (int64_t{1} << 31),
      "max_sequence_tokens = {}", options.max_sequence_tokens);
  switch (options.format) {
    case TokenFormat::megatron:
      return std::make_unique<MegatronWriter>(path, options);
    case TokenFormat::llmc:
      return std::make_unique<LlmcWriter>(path, llmc_kinds[options.vocab <= 65536 ? 0 : 1],
                                          options.vocab);
    default:
      break;
  }
  return std::make_unique<NanogptWriter>(path, options);
}

}  // namespace trireme::data
