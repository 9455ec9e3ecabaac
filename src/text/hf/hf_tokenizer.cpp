// SPDX-License-Identifier: Apache-2.0
#include "text/hf/hf_tokenizer.h"

#include <fmt/core.h>

#include <algorithm>
#include <deque>
#include <mutex>
#include <set>
#include <unordered_map>

#include "base/error.h"
#include "base/log.h"
#include "text/hf/parts.h"
#include "text/hf/tokenizer_json.h"

namespace trireme::text {

namespace {

// What one thread needs to encode.
struct Workspace {
  BpeWorkspace bpe;
  PieceList pieces;
  std::string normalized;
};

// Workspaces that no thread uses now: their caches are kept.
class WorkspacePool {
 public:
  std::unique_ptr<Workspace> take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return std::make_unique<Workspace>();
    auto workspace = std::move(free_.back());
    free_.pop_back();
    return workspace;
  }
  void give_back(std::unique_ptr<Workspace> workspace) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(workspace));
  }

 private:
  std::mutex mutex_;  // guards free_
  std::vector<std::unique_ptr<Workspace>> free_;
};

class HfTokenizer final : public Tokenizer {
 public:
  HfTokenizer(const TokenizerJson& tokenizer, const std::filesystem::path& file);

  std::string decode(std::span<const int32_t> ids, DecodeOptions options) const override;
  std::unique_ptr<StreamingDecoder> streaming_decoder(DecodeOptions options) const override;

  int32_t vocab_size() const override { return static_cast<int32_t>(tokens_.size()); }
  std::optional<std::string> token_of(int32_t id) const override {
    const std::string* token = text_of(id);
    if (token == nullptr) return std::nullopt;
    return *token;
  }
  std::optional<int32_t> id_of(std::string_view token) const override;
  bool is_special(int32_t id) const override {
    return id >= 0 && id < vocab_size() && tokens_[static_cast<size_t>(id)].is_special;
  }
  // nullptr if no token has the id.
  const std::string* text_of(int32_t id) const {
    if (id < 0 || id >= vocab_size()) return nullptr;
    return tokens_[static_cast<size_t>(id)].text;
  }
  // What the decoder receives for the id; nullptr if no token has it, or it is skipped.
  const std::string* decoded_text_of(int32_t id, DecodeOptions options) const {
    if (id < 0 || id >= vocab_size()) return nullptr;
    const Token& token = tokens_[static_cast<size_t>(id)];
    return options.skip_special && token.is_skipped ? nullptr : token.decoded;
  }
  const std::vector<std::unique_ptr<DecoderPart>>& decoder() const { return decoder_; }

 private:
  struct Token {
    const std::string* text = nullptr;
    const std::string* decoded = nullptr;  // what the decoder receives
    bool is_special = false;
    bool is_skipped = false;  // by a decoder that skips special tokens
  };

  void encode_valid(std::string_view text, EncodeOptions options,
                    std::vector<int32_t>& ids) const override;
  void encode_raw(const Piece& raw, Workspace& workspace, std::vector<int32_t>& ids) const;
  // Applies the normalizer; its refusals name the file. REQUIRES: there is one.
  std::string_view normalized(std::string_view text, std::string& storage, bool& keeps_start) const;
  void encode_plain(const Piece& plain, Workspace& workspace, std::vector<int32_t>& ids) const;
  void list_tokens();
  void build_matchers(const JsonValue& root);
  void read_names(const std::filesystem::path& folder);
  void list_files(const std::filesystem::path& file);

  std::unique_ptr<BpeModel> model_;
  std::vector<AddedToken> added_;
  std::unique_ptr<Normalizer> normalizer_;  // nullptr: none
  PreTokenizerPart pre_tokenizer_;          // part nullptr: none
  std::vector<std::unique_ptr<DecoderPart>> decoder_;
  TemplateIds template_;
  std::vector<Token> tokens_;                 // by id
  std::deque<std::string> normalized_forms_;  // of added tokens
  AddedTokenMatcher raw_matcher_;
  AddedTokenMatcher normalized_matcher_;
  mutable WorkspacePool workspaces_;
};

HfTokenizer::HfTokenizer(const TokenizerJson& tokenizer, const std::filesystem::path& file) {
  const std::string name = file.string();
  const JsonValue root(tokenizer.json, name);
  model_ = read_bpe_model(root.at("model"), tokenizer.tables);
  if (const auto added = root.find("added_tokens")) {
    added_ = read_added_tokens(*added, model_->vocabulary());
  }
  if (const auto part = root.find("normalizer")) normalizer_ = read_normalizer(*part);
  if (const auto part = root.find("pre_tokenizer")) {
    pre_tokenizer_ = read_pre_tokenizer(*part, model_->has_all_bytes());
  }
  if (const auto part = root.find("decoder")) {
    decoder_ = read_decoder(*part);
  } else {
    decoder_.push_back(join_with_spaces_decoder());
  }
  if (const auto part = root.find("post_processor")) template_ = read_post_processor(*part);
  for (const char* key : {"truncation", "padding"}) {
    if (root.find(key))
      base::log_warning("{}: {} is ignored: texts are encoded as they are", name, key);
  }
  list_tokens();
  for (const auto* side : {&template_.before, &template_.after}) {
    for (const int32_t id : *side) {
      if (text_of(id) == nullptr) {
        root.at("post_processor").fail(fmt::format("uses the id {}, which no token has", id));
      }
    }
  }
  list_files(file);
  build_matchers(root);
  fingerprint_ = fingerprint_of(tokenizer);
  read_names(file.parent_path());
}

void HfTokenizer::list_tokens() {
  int32_t max_id = -1;
  for (const auto& [token, id] : model_->vocabulary()) max_id = std::max(max_id, id);
  for (const AddedToken& token : added_) max_id = std::max(max_id, token.id);
  tokens_.resize(static_cast<size_t>(max_id + 1));
  for (const auto& [token, id] : model_->vocabulary()) {
    tokens_[static_cast<size_t>(id)] = {&token, &token, false, false};
  }
  for (const AddedToken& token : added_) {
    tokens_[static_cast<size_t>(token.id)] = {&token.content, &token.content, token.special,
                                              token.special};
  }
}

void HfTokenizer::build_matchers(const JsonValue& root) {
  std::set<std::string_view> special;
  for (const AddedToken& token : added_) {
    if (token.special) special.insert(token.content);
  }
  for (const bool is_special : {true, false}) {
    for (const AddedToken& token : added_) {
      if (token.special != is_special) continue;
      if (!token.normalized || normalizer_ == nullptr) {
        (token.normalized ? normalized_matcher_ : raw_matcher_).add(token.content, token);
        continue;
      }
      std::string storage;
      bool keeps_start = true;
      normalized_forms_.emplace_back(normalized(token.content, storage, keeps_start));
      const std::string& form = normalized_forms_.back();
      if (form.empty()) {
        root.at("added_tokens")
            .fail(fmt::format("'{}' is looked for in normalized text, but its normalized form is "
                              "empty; supported: tokens that keep a character, or \"normalized\": "
                              "false",
                              token.content));
      }
      normalized_matcher_.add(form, token);
      // As `tokenizers` since 0.23: the normalized form is decoded, and decides what is skipped.
      Token& entry = tokens_[static_cast<size_t>(token.id)];
      entry.decoded = &form;
      entry.is_skipped = special.contains(form);
    }
  }
}

// bos_token and so on are a string, or an object with the string as its content.
void HfTokenizer::read_names(const std::filesystem::path& folder) {
  for (const char* file : {"special_tokens_map.json", "tokenizer_config.json"}) {
    const std::filesystem::path path = folder / file;
    std::error_code error;
    if (!std::filesystem::exists(path, error)) continue;
    const std::string name = path.string();
    const SortedJson json = read_json(path);
    const JsonValue root(json, name);
    const auto read = [&](const char* key, std::optional<int32_t>& id) {
      const auto value = root.find(key);
      if (!value) return;
      const std::string token =
          value->is_string() ? value->string() : value->at("content").string();
      if (const auto found = id_of(token)) {
        id = *found;
      } else {
        base::log_warning("{}: {} is '{}', which is not a token; ignored", name, key, token);
      }
    };
    read("bos_token", special_ids_.bos);
    read("eos_token", special_ids_.eos);
    read("unk_token", special_ids_.unk);
    read("pad_token", special_ids_.pad);
  }
}

void HfTokenizer::list_files(const std::filesystem::path& file) {
  files_.push_back(file);
  for (const char* name :
       {"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json",
        "merges.txt", "tokenizer.model", "chat_template.jinja", "chat_template.json"}) {
    const std::filesystem::path other = file.parent_path() / name;
    std::error_code error;
    if (std::filesystem::exists(other, error)) files_.push_back(other);
  }
}

std::optional<int32_t> HfTokenizer::id_of(std::string_view token) const {
  for (const AddedToken& each : added_) {
    if (each.content == token) return each.id;
  }
  const auto found = model_->vocabulary().find(std::string(token));
  if (found == model_->vocabulary().end()) return std::nullopt;
  return found->second;
}

// Calls on_text(part) and on_token(token) for the parts of `piece` from left to right.
template <typename OnText, typename OnToken>
void for_each_part(const AddedTokenMatcher& matcher, const Piece& piece, OnText&& on_text,
                   OnToken&& on_token) {
  std::vector<AddedTokenMatcher::Match> matches;
  matcher.find(piece.text, matches);
  size_t done = 0;
  const auto text_until = [&](size_t end) {
    if (end > done) {
      on_text(Piece{piece.text.substr(done, end - done), piece.is_at_start && done == 0});
    }
  };
  for (const auto& match : matches) {
    text_until(match.begin);
    on_token(*match.token);
    done = match.end;
  }
  text_until(piece.text.size());
}

void HfTokenizer::encode_valid(std::string_view text, EncodeOptions options,
                               std::vector<int32_t>& ids) const {
  const auto add_all = [&](const std::vector<int32_t>& more) {
    if (options.add_special) ids.insert(ids.end(), more.begin(), more.end());
  };
  auto workspace = workspaces_.take();
  add_all(template_.before);
  for_each_part(
      raw_matcher_, {text, true}, [&](const Piece& raw) { encode_raw(raw, *workspace, ids); },
      [&](const AddedToken& token) { ids.push_back(token.id); });
  add_all(template_.after);
  workspaces_.give_back(std::move(workspace));
}

std::string_view HfTokenizer::normalized(std::string_view text, std::string& storage,
                                         bool& keeps_start) const {
  try {
    return normalizer_->apply(text, storage, keeps_start);
  } catch (const base::ConfigError& error) {
    throw base::ConfigError(fmt::format("{}: {}", files_.front().string(), error.what()));
  }
}

// Text between added tokens that are not normalized.
void HfTokenizer::encode_raw(const Piece& raw, Workspace& workspace,
                             std::vector<int32_t>& ids) const {
  Piece piece = raw;
  if (normalizer_ != nullptr) {
    bool keeps_start = true;
    piece.text = normalized(raw.text, workspace.normalized, keeps_start);
    piece.is_at_start = raw.is_at_start && keeps_start;
  }
  for_each_part(
      normalized_matcher_, piece, [&](const Piece& plain) { encode_plain(plain, workspace, ids); },
      [&](const AddedToken& token) { ids.push_back(token.id); });
}

// Text without added tokens.
void HfTokenizer::encode_plain(const Piece& plain, Workspace& workspace,
                               std::vector<int32_t>& ids) const {
  PieceList& list = workspace.pieces;
  list.pieces.clear();
  list.changed.clear();
  if (pre_tokenizer_.part != nullptr) {
    pre_tokenizer_.part->apply(plain, list);
  } else {
    list.pieces.push_back(plain);
  }
  for (const Piece& piece : list.pieces) {
    if (pre_tokenizer_.leaves_bytes) {
      model_->encode_bytes(piece.text, workspace.bpe, ids);
    } else {
      model_->encode_text(piece.text, workspace.bpe, ids);
    }
  }
}

class HfStreamingDecoder final : public StreamingDecoder {
 public:
  HfStreamingDecoder(const HfTokenizer& tokenizer, DecodeOptions options)
      : tokenizer_(tokenizer), options_(options), stream_(tokenizer.decoder()) {}
  std::string push(int32_t id) override {
    std::string text;
    const std::string* token = tokenizer_.decoded_text_of(id, options_);
    if (token != nullptr) stream_.push(*token, text);
    return text;
  }
  std::string finish() override {
    std::string text;
    stream_.finish(text);
    return text;
  }

 private:
  const HfTokenizer& tokenizer_;
  DecodeOptions options_;
  DecodeStream stream_;
};

std::string HfTokenizer::decode(std::span<const int32_t> ids, DecodeOptions options) const {
  HfStreamingDecoder stream(*this, options);
  std::string text;
  for (const int32_t id : ids) text += stream.push(id);
  return text + stream.finish();
}

std::unique_ptr<StreamingDecoder> HfTokenizer::streaming_decoder(DecodeOptions options) const {
  return std::make_unique<HfStreamingDecoder>(*this, options);
}

}  // namespace

std::unique_ptr<Tokenizer> open_hf_tokenizer(const std::filesystem::path& file) {
  return std::make_unique<HfTokenizer>(read_tokenizer_json(file), file);
}

}  // namespace trireme::text
