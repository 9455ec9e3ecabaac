// SPDX-License-Identifier: Apache-2.0
// Normalizers and pre-tokenizers.
#include <fmt/core.h>

#include "base/error.h"
#include "text/hf/parts.h"
#include "text/unicode/char_classes.h"

namespace trireme::text {

namespace {

constexpr int max_nesting = 32;

std::unique_ptr<Normalizer> read_normalizer_at(const JsonValue& json, int depth) {
  if (depth > max_nesting) json.fail("the sequences are nested too deep");
  const std::string type = json.type();
  try {
    if (type == "NFC") return form_normalizer(NormalForm::nfc);
    if (type == "NFD") return form_normalizer(NormalForm::nfd);
    if (type == "NFKC") return form_normalizer(NormalForm::nfkc);
    if (type == "NFKD") return form_normalizer(NormalForm::nfkd);
  } catch (const base::ConfigError& error) {
    json.fail(error.what());
  }
  if (type == "Lowercase") return lowercase_normalizer();
  if (type == "Strip") {
    return strip_normalizer(json.boolean_or("strip_left", true),
                            json.boolean_or("strip_right", true));
  }
  if (type == "StripAccents") return strip_accents_normalizer();
  if (type == "Replace") {
    return replace_normalizer(read_pattern(json.at("pattern")), json.at("content").string());
  }
  if (type == "Prepend") return prepend_normalizer(json.at("prepend").string());
  if (type == "Sequence") {
    std::vector<std::unique_ptr<Normalizer>> parts;
    for (const JsonValue& part : json.at("normalizers").items()) {
      parts.push_back(read_normalizer_at(part, depth + 1));
    }
    return sequence_normalizer(std::move(parts));
  }
  json.at("type").fail_supported(
      "NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Replace, Prepend, Sequence");
}

SplitBehavior read_behavior(const JsonValue& json) {
  const std::string name = json.string();
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  json.fail_supported("Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous");
}

PrependScheme read_scheme(const JsonValue& json) {
  // Files before version 0.15 have add_prefix_space instead.
  const bool adds_prefix = json.boolean_or("add_prefix_space", true);
  const auto scheme = json.find("prepend_scheme");
  if (!scheme) return adds_prefix ? PrependScheme::always : PrependScheme::never;
  const std::string name = scheme->string();
  if (!adds_prefix && name != "never") {
    scheme->fail(fmt::format("is '{}', but add_prefix_space is false", name));
  }
  if (name == "always") return PrependScheme::always;
  if (name == "first") return PrependScheme::first;
  if (name == "never") return PrependScheme::never;
  scheme->fail_supported("always, first, never");
}

PreTokenizerPart read_pre_tokenizer_at(const JsonValue& json, bool may_leave_bytes, int depth) {
  if (depth > max_nesting) json.fail("the sequences are nested too deep");
  const std::string type = json.type();
  if (type == "ByteLevel") {
    const ByteLevelOptions options{.add_prefix_space = json.boolean_or("add_prefix_space", true),
                                   .use_regex = json.boolean_or("use_regex", true),
                                   .writes_alphabet = !may_leave_bytes};
    if (may_leave_bytes && !options.add_prefix_space && !options.use_regex) return {nullptr, true};
    return {byte_level_pre_tokenizer(options), may_leave_bytes};
  }
  if (type == "Split") {
    return {split_pre_tokenizer(read_pattern(json.at("pattern")),
                                {.behavior = read_behavior(json.at("behavior")),
                                 .invert = json.boolean_or("invert", false)})};
  }
  if (type == "Metaspace") {
    return {metaspace_pre_tokenizer({.replacement = json.at("replacement").character(),
                                     .scheme = read_scheme(json),
                                     .split = json.boolean_or("split", true)})};
  }
  if (type == "Digits") {
    const bool is_individual = json.boolean_or("individual_digits", false);
    return {split_pre_tokenizer(
        class_pattern(char_class::numeric),
        {.behavior = is_individual ? SplitBehavior::isolated : SplitBehavior::contiguous})};
  }
  if (type == "Punctuation") {
    const auto behavior = json.find("behavior");
    return {split_pre_tokenizer(
        class_pattern(char_class::punctuation),
        {.behavior = behavior ? read_behavior(*behavior) : SplitBehavior::isolated})};
  }
  if (type == "Whitespace") {
    return {
        split_pre_tokenizer(words_pattern(), {.behavior = SplitBehavior::removed, .invert = true})};
  }
  if (type == "WhitespaceSplit") {
    return {split_pre_tokenizer(class_pattern(char_class::space),
                                {.behavior = SplitBehavior::removed})};
  }
  if (type == "Sequence") {
    const auto items = json.at("pretokenizers").items();
    std::vector<std::unique_ptr<PreTokenizer>> parts;
    bool leaves_bytes = false;
    for (size_t i = 0; i < items.size(); ++i) {
      const bool is_last = i + 1 == items.size();
      auto part = read_pre_tokenizer_at(items[i], may_leave_bytes && is_last, depth + 1);
      leaves_bytes = part.leaves_bytes;
      if (part.part != nullptr) parts.push_back(std::move(part.part));
    }
    if (parts.size() == 1) return {std::move(parts.front()), leaves_bytes};
    return {sequence_pre_tokenizer(std::move(parts)), leaves_bytes};
  }
  json.at("type").fail_supported(
      "ByteLevel, Split, Metaspace, Digits, Punctuation, Whitespace, WhitespaceSplit, Sequence");
}

}  // namespace

std::unique_ptr<Pattern> read_pattern(const JsonValue& json) {
  const auto literal = json.find("String");
  const auto regex = json.find("Regex");
  if (static_cast<bool>(literal) == static_cast<bool>(regex)) {
    json.fail("supported: an object with one key, 'String' or 'Regex'");
  }
  const JsonValue& text = literal ? *literal : *regex;
  if (text.string().empty()) text.fail("the pattern is empty");
  if (literal) return literal_pattern(literal->string());
  try {
    return regex_pattern(regex->string());
  } catch (const base::ConfigError& error) {
    regex->fail(error.what());
  }
}

std::unique_ptr<Normalizer> read_normalizer(const JsonValue& json) {
  return read_normalizer_at(json, 0);
}

PreTokenizerPart read_pre_tokenizer(const JsonValue& json, bool may_leave_bytes) {
  return read_pre_tokenizer_at(json, may_leave_bytes, 0);
}

}  // namespace trireme::text
