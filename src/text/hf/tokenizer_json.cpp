// SPDX-License-Identifier: Apache-2.0
#include "text/hf/tokenizer_json.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <span>

#include "base/error.h"
#include "base/sha256.h"

namespace trireme::text {
namespace {

// Receives the values of the file in order, and builds the tree without the large parts. It ends
// the parsing at the first value of these parts that is unusual.
class TablesReader final : public nlohmann::json_sax<SortedJson> {
 public:
  bool is_complete() const { return is_closed_ && has_vocab_ && has_merges_; }
  const std::string& problem() const { return problem_; }  // of the syntax; empty: none
  SortedJson take_json() { return std::move(root_); }
  ModelTables take_tables() { return std::move(tables_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }  // negative
  bool number_unsigned(number_unsigned_t value) override {
    if (part_ != Part::vocab) return add(value);
    if (value > static_cast<uint64_t>(max_token_id)) return false;
    tables_.vocab.emplace_back(std::move(token_), static_cast<int32_t>(value));
    return true;
  }
  bool number_float(number_float_t value, const string_t& /*text*/) override { return add(value); }
  bool string(string_t& value) override {
    if (part_ != Part::merges) return add(std::move(value));
    if (!is_in_pair_) {
      tables_.merges.emplace_back();
      return split_merge(value, tables_.merges.back());
    }
    BpeModel::MergeRule& merge = tables_.merges.back();
    if (pair_size_ < 2) (pair_size_ == 0 ? merge.left : merge.right) = std::move(value);
    return ++pair_size_ <= 2;
  }
  bool binary(binary_t& /*value*/) override { return false; }

  bool start_object(std::size_t /*size*/) override {
    if (is_model_key("vocab")) {
      part_ = Part::vocab;
      return !std::exchange(has_vocab_, true) && add_large(SortedJson::object());
    }
    return open(SortedJson::object());
  }
  bool key(string_t& value) override {
    (part_ == Part::vocab ? token_ : key_) = std::move(value);
    return true;
  }
  bool end_object() override { return part_ == Part::vocab ? end_part() : close(); }

  bool start_array(std::size_t /*size*/) override {
    if (part_ == Part::merges) {
      if (std::exchange(is_in_pair_, true)) return false;
      pair_size_ = 0;
      tables_.merges.emplace_back();
      return true;
    }
    if (is_model_key("merges")) {
      part_ = Part::merges;
      return !std::exchange(has_merges_, true) && add_large(SortedJson::array());
    }
    return open(SortedJson::array());
  }
  bool end_array() override {
    if (part_ != Part::merges) return close();
    if (!is_in_pair_) return end_part();
    is_in_pair_ = false;
    return pair_size_ == 2;
  }

  bool parse_error(std::size_t /*position*/, const std::string& /*last_token*/,
                   const nlohmann::detail::exception& error) override {
    problem_ = error.what();
    return false;
  }

 private:
  enum class Part : uint8_t { none, vocab, merges };

  // Is the next value that of `key` in the object "model" of the root?
  bool is_model_key(std::string_view key) const {
    return part_ == Part::none && open_.size() == 2 && is_in_model_ && open_[1]->is_object() &&
           key_ == key;
  }
  // Puts a value that is not open into the innermost open one.
  template <typename Value>
  bool add(Value&& value) {
    return part_ == Part::none && place(SortedJson(std::forward<Value>(value))) != nullptr;
  }
  bool add_large(SortedJson&& empty) { return place(std::move(empty)) != nullptr; }
  bool end_part() {
    part_ = Part::none;
    return true;
  }
  bool open(SortedJson&& empty) {
    if (part_ != Part::none) return false;
    if (open_.size() == 1) {
      is_in_model_ = open_[0]->is_object() && key_ == "model";
      if (is_in_model_ && std::exchange(has_model_, true)) return false;  // a second one
    }
    open_.push_back(place(std::move(empty)));
    return true;
  }
  bool close() {
    open_.pop_back();
    is_closed_ = open_.empty();
    return true;
  }
  // As the library's own tree: of equal keys the last one counts.
  SortedJson* place(SortedJson&& value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    SortedJson& inside = *open_.back();
    if (inside.is_array()) {
      inside.push_back(std::move(value));
      return &inside.back();
    }
    SortedJson& member = inside[key_];
    member = std::move(value);
    return &member;
  }

  SortedJson root_;
  std::vector<SortedJson*> open_;  // from the root to the innermost; no other value grows then
  std::string key_, token_, problem_;
  ModelTables tables_;
  Part part_ = Part::none;
  int pair_size_ = 0;
  bool is_in_pair_ = false, is_in_model_ = false, is_closed_ = false;
  bool has_model_ = false, has_vocab_ = false, has_merges_ = false;
};

// Sorts the vocabulary. Returns false if a token or an id occurs twice.
bool sort_vocabulary(std::vector<std::pair<std::string, int32_t>>& vocab) {
  std::sort(vocab.begin(), vocab.end());
  std::vector<bool> taken;
  for (size_t i = 0; i < vocab.size(); ++i) {
    const auto id = static_cast<size_t>(vocab[i].second);
    if (i > 0 && vocab[i].first == vocab[i - 1].first) return false;
    if (id >= taken.size()) taken.resize(id + id / 2 + 1);
    if (taken[id]) return false;
    taken[id] = true;
  }
  return true;
}

// Appends a string as SortedJson::dump() writes it. REQUIRES: valid UTF-8, as the parser ensures.
void append_quoted(std::string& out, std::string_view text) {
  constexpr std::string_view letters = "\b\t\n\f\r\"\\", names = "btnfr\"\\";
  out += '"';
  for (const char c : text) {
    if (const size_t special = letters.find(c); special != std::string_view::npos) {
      out += '\\';
      out += names[special];
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  out += '"';
}

std::string merges_text(const ModelTables& tables) {
  std::string out = "[";
  for (const BpeModel::MergeRule& merge : tables.merges) {
    out += out.size() == 1 ? "[" : ",[";
    append_quoted(out, merge.left);
    out += ',';
    append_quoted(out, merge.right);
    out += ']';
  }
  return out + "]";
}

std::string vocab_text(const ModelTables& tables) {
  std::string out = "{";
  for (const auto& [token, id] : tables.vocab) {
    if (out.size() > 1) out += ',';
    append_quoted(out, token);
    fmt::format_to(std::back_inserter(out), ":{}", id);
  }
  return out + "}";
}

// Returns the object as dump() writes it; value_text(key, value) writes the values.
template <typename ValueText>
std::string object_text(const SortedJson& object, ValueText&& value_text) {
  std::string out = "{";
  for (const auto& [key, value] : object.items()) {
    if (out.size() > 1) out += ',';
    append_quoted(out, key);
    out += ':' + value_text(key, value);
  }
  return out + "}";
}

}  // namespace

TokenizerJson read_tokenizer_json(const std::filesystem::path& file) {
  const std::string text = read_json_text(file);
  TablesReader reader;
  const bool is_usual = SortedJson::sax_parse(text, &reader) && reader.is_complete();
  if (!is_usual) return {parse_json(text, file), std::nullopt};
  TokenizerJson result{reader.take_json(), reader.take_tables()};
  if (!sort_vocabulary(result.tables->vocab)) return {parse_json(text, file), std::nullopt};
  return result;
}

bool split_merge(std::string_view text, BpeModel::MergeRule& merge) {
  const size_t space = text.find(' ');
  if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
    return false;
  }
  merge.left = text.substr(0, space);
  merge.right = text.substr(space + 1);
  return true;
}

std::string fingerprint_of(const TokenizerJson& tokenizer) {
  SortedJson content = tokenizer.json;
  for (const char* key : {"version", "truncation", "padding"}) content.erase(key);
  if (!tokenizer.tables) {
    for (SortedJson& merge : content["model"]["merges"]) {
      if (!merge.is_string()) continue;
      BpeModel::MergeRule pair;
      split_merge(merge.get<std::string>(), pair);
      merge = SortedJson::array({pair.left, pair.right});
    }
  }
  const std::string canonical =
      !tokenizer.tables
          ? content.dump()
          : object_text(content, [&](const std::string& key, const SortedJson& value) {
              if (key != "model") return value.dump();
              return object_text(value, [&](const std::string& part, const SortedJson& inner) {
                return part == "merges"  ? merges_text(*tokenizer.tables)
                       : part == "vocab" ? vocab_text(*tokenizer.tables)
                                         : inner.dump();
              });
            });
  base::Sha256 hash;
  hash.update(std::as_bytes(std::span(canonical)));
  return hash.hex();
}

}  // namespace trireme::text
