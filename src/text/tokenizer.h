// SPDX-License-Identifier: Apache-2.0
// Tokenizer: text to token ids and back. open_tokenizer() reads the files that models come with:
// tokenizer.json of Hugging Face `tokenizers` (BPE models) and SentencePiece's .model. Ids and text
// are those of the library that made the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/system/threads.h"

namespace trireme::text {

struct EncodeOptions {
  bool add_special = true;  // what the tokenizer puts around a text, such as its first token
};

struct DecodeOptions {
  bool skip_special = true;
};

struct SpecialIds {
  std::optional<int32_t> bos;
  std::optional<int32_t> eos;
  std::optional<int32_t> unk;
  std::optional<int32_t> pad;

  bool operator==(const SpecialIds&) const = default;
};

// Turns ids into text one by one. The texts of all calls, joined, are decode() of all ids; a code
// point goes out when all of its bytes are there. Lives no longer than its tokenizer.
class StreamingDecoder {
 public:
  virtual ~StreamingDecoder() = default;
  // Returns the text that is complete now, which may be empty.
  virtual std::string push(int32_t id) = 0;
  // Returns the rest. No push() afterwards.
  virtual std::string finish() = 0;
};

// All functions are const and may be called from several threads at once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Invalid UTF-8 is replaced by U+FFFD, one for each maximal invalid sequence.
  std::vector<int32_t> encode(std::string_view text, EncodeOptions options = {}) const;
  // The ids of each text, the same for any number of threads.
  std::vector<std::vector<int32_t>> encode_batch(std::span<const std::string_view> texts,
                                                 EncodeOptions options,
                                                 base::ThreadPool& threads) const;
  // Ids without a token are left out.
  virtual std::string decode(std::span<const int32_t> ids, DecodeOptions options = {}) const = 0;
  virtual std::unique_ptr<StreamingDecoder> streaming_decoder(DecodeOptions options = {}) const = 0;

  // The highest id plus one: the number of rows that an embedding needs.
  virtual int32_t vocab_size() const = 0;
  virtual std::optional<std::string> token_of(int32_t id) const = 0;
  virtual std::optional<int32_t> id_of(std::string_view token) const = 0;
  virtual bool is_special(int32_t id) const = 0;

  const SpecialIds& special_ids() const { return special_ids_; }
  // SHA-256 of the content, whatever its spacing and order of keys: equal fingerprints give equal
  // ids.
  const std::string& fingerprint() const { return fingerprint_; }
  // The files that belong beside the weights of a model, existing ones only.
  const std::vector<std::filesystem::path>& files() const { return files_; }

 protected:
  SpecialIds special_ids_;
  std::string fingerprint_;
  std::vector<std::filesystem::path> files_;

 private:
  // Appends the ids. REQUIRES: valid UTF-8.
  virtual void encode_valid(std::string_view text, EncodeOptions options,
                            std::vector<int32_t>& ids) const = 0;
};

// Opens a tokenizer.json, a folder that contains one or a tokenizer.model, or a SentencePiece
// .model. Names of special tokens come from tokenizer_config.json and special_tokens_map.json
// beside it, if they exist. Throws IoError if a file cannot be read, ConfigError with file, JSON
// path and what is supported if its content cannot be used.
std::unique_ptr<Tokenizer> open_tokenizer(const std::filesystem::path& path);

}  // namespace trireme::text
