// SPDX-License-Identifier: Apache-2.0
#include "text/train/train_bpe.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>
#include <system_error>
#include <unordered_map>

#include "base/error.h"
#include "base/system/durable_file.h"
#include "base/text/json.h"
#include "text/bpe/byte_alphabet.h"
#include "text/normal_forms.h"
#include "text/train/merge_learner.h"
#include "text/unicode/utf8.h"

namespace trireme::text {

namespace {

struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};

// Tokens by id: special ones, bytes in the order of their characters, products.
class TokenNames final : public ProductNames {
 public:
  explicit TokenNames(const std::vector<std::string>& special_tokens) {
    for (const std::string& token : special_tokens) (void)add(token);
    std::map<char32_t, unsigned> bytes;
    for (unsigned byte = 0; byte < 256; ++byte) bytes[byte_alphabet()[byte]] = byte;
    for (const auto& [c, byte] : bytes) {
      std::string token;
      append_utf8(token, c);
      byte_ids_[byte] = add(token);
    }
  }

  int32_t product(int32_t left, int32_t right) override {
    return add(tokens_[static_cast<size_t>(left)] + tokens_[static_cast<size_t>(right)]);
  }
  int32_t size() const override { return static_cast<int32_t>(tokens_.size()); }
  const std::vector<std::string>& tokens() const { return tokens_; }
  int32_t of_byte(char byte) const { return byte_ids_[static_cast<unsigned char>(byte)]; }

 private:
  int32_t add(const std::string& token) {
    const auto [found, is_new] = ids_.emplace(token, size());
    if (is_new) tokens_.push_back(token);
    return found->second;
  }

  std::vector<std::string> tokens_;
  std::unordered_map<std::string, int32_t> ids_;
  std::array<int32_t, 256> byte_ids_{};
};

base::Json byte_level_json(bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", false},
          {"use_regex", use_regex}};
}

base::Json pre_tokenizer_json(KnownPattern pattern) {
  if (pattern == KnownPattern::gpt2) return byte_level_json(true);
  const base::Json split = {{"type", "Split"},
                            {"pattern", {{"Regex", std::string(regex_of(pattern))}}},
                            {"behavior", "Isolated"},
                            {"invert", false}};
  return {{"type", "Sequence"},
          {"pretokenizers", base::Json::array({split, byte_level_json(false)})}};
}

// The lists of the model are written by hand: an object of the JSON library with a hundred thousand
// keys in their order takes minutes.
std::string tokenizer_json(const TrainBpeOptions& options, const TokenNames& names,
                           const std::vector<LearnedMerge>& merges) {
  const auto quoted = [&](int32_t id) {
    return base::Json(names.tokens()[static_cast<size_t>(id)]).dump();
  };
  base::Json added = base::Json::array();
  for (size_t i = 0; i < options.special_tokens.size(); ++i) {
    added.push_back({{"id", i},
                     {"content", options.special_tokens[i]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  base::Json head = {{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}};
  head["added_tokens"] = std::move(added);
  head["normalizer"] = options.nfc ? base::Json{{"type", "NFC"}} : base::Json(nullptr);
  head["pre_tokenizer"] = pre_tokenizer_json(options.pattern);
  head["post_processor"] = nullptr;
  head["decoder"] = byte_level_json(true);
  const base::Json model = {{"type", "BPE"},
                            {"dropout", nullptr},
                            {"unk_token", nullptr},
                            {"continuing_subword_prefix", nullptr},
                            {"end_of_word_suffix", nullptr},
                            {"fuse_unk", false},
                            {"byte_fallback", false},
                            {"ignore_merges", false}};
  std::string text = head.dump();
  text.pop_back();
  text += ",\"model\":" + model.dump();
  text.pop_back();
  text += ",\n\"vocab\":{";
  for (int32_t id = 0; id < names.size(); ++id) {
    text += fmt::format("{}\n{}:{}", id == 0 ? "" : ",", quoted(id), id);
  }
  text += "},\n\"merges\":[";
  for (size_t i = 0; i < merges.size(); ++i) {
    text += fmt::format("{}\n[{},{}]", i == 0 ? "" : ",", quoted(merges[i].left),
                        quoted(merges[i].right));
  }
  return text + "]}}\n";
}

}  // namespace

struct BpeTrainer::Words {
  std::unordered_map<std::string, int64_t, StringHash, std::equal_to<>> counts;
  std::vector<std::string_view> pieces;  // scratch
};

BpeTrainer::BpeTrainer(TrainBpeOptions options)
    : options_(std::move(options)), words_(std::make_unique<Words>()) {
  const auto least = static_cast<int64_t>(options_.special_tokens.size()) + 256;
  if (options_.vocab_size < least) {
    throw base::ConfigError(
        fmt::format("a vocabulary of {} tokens is too small: 256 bytes and {} special tokens need "
                    "at least {}",
                    options_.vocab_size, options_.special_tokens.size(), least));
  }
  std::set<std::string> seen;
  for (const std::string& token : options_.special_tokens) {
    if (token.empty() || !is_valid_utf8(token) || !seen.insert(token).second) {
      throw base::ConfigError(
          fmt::format("the special token '{}' is empty, listed twice or not valid UTF-8", token));
    }
    if (const auto bytes = bytes_of_token(token); bytes && bytes->size() == 1) {
      throw base::ConfigError(
          fmt::format("the special token '{}' is one of the characters that stand for bytes; use "
                      "a longer one",
                      token));
    }
  }
  if (options_.nfc) require_normal_forms();
}

BpeTrainer::~BpeTrainer() = default;

void BpeTrainer::add(std::string_view text) {
  std::string valid, normalized;
  if (!is_valid_utf8(text)) {
    valid = with_replacements(text);
    text = valid;
  }
  if (options_.nfc) text = normalize(NormalForm::nfc, text, normalized);
  auto& pieces = words_->pieces;
  pieces.clear();
  split_by(options_.pattern, text, pieces);
  for (const std::string_view piece : pieces) {
    const auto found = words_->counts.find(piece);
    if (found != words_->counts.end()) {
      ++found->second;
    } else {
      words_->counts.emplace(piece, 1);
    }
  }
}

void BpeTrainer::add_counts_of(const BpeTrainer& other) {
  for (const auto& [piece, count] : other.words_->counts) words_->counts[piece] += count;
}

int64_t BpeTrainer::pieces() const { return static_cast<int64_t>(words_->counts.size()); }

std::string BpeTrainer::train(const std::function<void(int32_t tokens)>& progress) const {
  TokenNames names(options_.special_tokens);
  std::vector<CountedWord> words;
  words.reserve(words_->counts.size());
  for (const auto& [piece, count] : words_->counts) {
    CountedWord word{.count = count};
    for (const char byte : piece) word.symbols.push_back(names.of_byte(byte));
    words.push_back(std::move(word));
  }
  // The order of words decides nothing, but a fixed one keeps every run the same.
  std::sort(words.begin(), words.end(),
            [](const CountedWord& a, const CountedWord& b) { return a.symbols < b.symbols; });
  const auto merges = learn_merges(words,
                                   {.vocab_size = options_.vocab_size,
                                    .min_frequency = options_.min_frequency,
                                    .progress = progress},
                                   names);
  return tokenizer_json(options_, names, merges);
}

std::string train_bpe(std::span<const std::string_view> texts, const TrainBpeOptions& options) {
  BpeTrainer trainer(options);
  for (const std::string_view text : texts) trainer.add(text);
  return trainer.train();
}

void write_tokenizer(const std::filesystem::path& file, std::string_view content) {
  const std::filesystem::path temporary = file.string() + fmt::format(".{}.tmp", ::getpid());
  try {
    base::write_synced(temporary, content);
    std::filesystem::rename(temporary, file);
    base::sync_folder(file.has_parent_path() ? file.parent_path() : ".");
  } catch (const std::system_error& error) {
    std::error_code ignored;
    std::filesystem::remove(temporary, ignored);
    throw base::IoError(
        fmt::format("{}: the tokenizer cannot be written: {}", file.string(), error.what()));
  }
}

}  // namespace trireme::text
