// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer.h"

#include <exception>

#include "base/error.h"
#include "text/hf/hf_tokenizer.h"
#include "text/known_tokenizers.h"
#include "text/sentencepiece.h"
#include "text/unicode/utf8.h"

namespace trireme::text {

std::vector<int32_t> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 3 + 8);
  if (is_valid_utf8(text)) {
    encode_valid(text, options, ids);
  } else {
    encode_valid(with_replacements(text), options, ids);
  }
  return ids;
}

std::vector<std::vector<int32_t>> Tokenizer::encode_batch(std::span<const std::string_view> texts,
                                                          EncodeOptions options,
                                                          base::ThreadPool& threads) const {
  std::vector<std::vector<int32_t>> ids(texts.size());
  std::vector<std::exception_ptr> errors(texts.size());
  threads.for_each(static_cast<int64_t>(texts.size()), [&](int64_t index) {
    const auto i = static_cast<size_t>(index);
    try {
      ids[i] = encode(texts[i], options);
    } catch (...) {
      errors[i] = std::current_exception();
    }
  });
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  return ids;
}

std::unique_ptr<Tokenizer> open_tokenizer(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::path file = path;
  if (fs::is_directory(path, error)) {
    file = path / "tokenizer.json";
    if (!fs::exists(file, error)) file = path / "tokenizer.model";
    if (!fs::exists(file, error)) {
      throw base::IoError(path.string() +
                          ": the folder contains neither tokenizer.json nor tokenizer.model");
    }
  }
  if (!fs::exists(file, error)) {
    // Not an IoError: another start would not find the file either.
    throw base::ConfigError(
        file.string() +
        ": the file does not exist; a tokenizer is a tokenizer.json, a folder that "
        "contains one, or a SentencePiece .model" +
        known_tokenizer_hint(path.string()));
  }
  if (file.extension() == ".model") return open_sentencepiece(file);
  return open_hf_tokenizer(file);
}

}  // namespace trireme::text
