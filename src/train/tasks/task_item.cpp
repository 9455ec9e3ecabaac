// SPDX-License-Identifier: Apache-2.0
#include "train/tasks/task_item.h"

#include <fmt/format.h>

#include <array>
#include <charconv>

#include "base/error.h"
#include "base/text/json.h"

namespace trireme::train {
namespace {

[[noreturn]] void refuse(std::string_view origin, const std::string& found) {
  throw base::ConfigError(
      fmt::format("{}: {}; each line is an object like {{\"context\": \"...\", \"choices\": "
                  "[\"...\", \"...\"], \"label\": 0}}",
                  origin, found));
}

// Returns the value of one of two keys.
const base::Json& value_of(const base::Json& json, const char* key, const char* other,
                           std::string_view origin) {
  if (json.contains(key) && json.contains(other)) {
    refuse(origin, fmt::format("\"{}\" and \"{}\" are the same field", key, other));
  }
  if (json.contains(key)) return json.at(key);
  if (!json.contains(other)) {
    refuse(origin, fmt::format("\"{}\" (or \"{}\") is missing", key, other));
  }
  return json.at(other);
}

std::string text_of(const base::Json& value, const char* key, std::string_view origin) {
  if (!value.is_string()) {
    refuse(origin, fmt::format("\"{}\" has {}, not a text", key, value.dump()));
  }
  return value.get<std::string>();
}

int64_t label_of(const base::Json& value, std::string_view origin) {
  if (value.is_number_integer()) return value.get<int64_t>();
  int64_t label = 0;
  if (value.is_string()) {
    const auto text = value.get<std::string>();
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), label);
    if (error == std::errc() && end == text.data() + text.size()) return label;
  }
  refuse(origin, fmt::format("\"label\" is {}, not an integer", value.dump()));
}

// The encodings of white space that Python's str.rstrip() removes.
constexpr std::array<std::string_view, 29> white_space = {" ",
                                                          "\t",
                                                          "\n",
                                                          "\r",
                                                          "\v",
                                                          "\f",
                                                          "\x1c",
                                                          "\x1d",
                                                          "\x1e",
                                                          "\x1f",
                                                          "\xc2\x85",
                                                          "\xc2\xa0",
                                                          "\xe1\x9a\x80",
                                                          "\xe2\x80\x80",
                                                          "\xe2\x80\x81",
                                                          "\xe2\x80\x82",
                                                          "\xe2\x80\x83",
                                                          "\xe2\x80\x84",
                                                          "\xe2\x80\x85",
                                                          "\xe2\x80\x86",
                                                          "\xe2\x80\x87",
                                                          "\xe2\x80\x88",
                                                          "\xe2\x80\x89",
                                                          "\xe2\x80\x8a",
                                                          "\xe2\x80\xa8",
                                                          "\xe2\x80\xa9",
                                                          "\xe2\x80\xaf",
                                                          "\xe2\x81\x9f",
                                                          "\xe3\x80\x80"};

// Returns the text without the white space at its end.
std::string_view stripped(std::string_view text) {
  for (bool is_changed = true; is_changed;) {
    is_changed = false;
    for (const std::string_view space : white_space) {
      if (!text.ends_with(space)) continue;
      text.remove_suffix(space.size());
      is_changed = true;
    }
  }
  return text;
}

bool begins_with_space(std::string_view text) {
  for (const std::string_view space : white_space) {
    if (text.starts_with(space)) return true;
  }
  return false;
}

}  // namespace

TaskItem task_from_json(std::string_view line, std::string_view origin) {
  const base::Json json = base::Json::parse(line, nullptr, false);
  if (json.is_discarded()) refuse(origin, "not valid JSON");
  if (!json.is_object()) refuse(origin, "not an object");
  TaskItem item;
  item.context = text_of(value_of(json, "context", "ctx", origin), "context", origin);
  const base::Json& choices = value_of(json, "choices", "endings", origin);
  if (!choices.is_array() || choices.size() < 2) {
    refuse(origin, "\"choices\" is not a list of at least two texts");
  }
  for (const base::Json& choice : choices) {
    item.choices.push_back(text_of(choice, "choices", origin));
    if (item.choices.back().empty()) refuse(origin, "a choice is empty");
  }
  const int64_t label = label_of(value_of(json, "label", "gold", origin), origin);
  if (label < 0 || label >= std::ssize(item.choices)) {
    refuse(origin, fmt::format("\"label\" is {}, but there are {} choices, counted from 0", label,
                               item.choices.size()));
  }
  item.label = static_cast<size_t>(label);
  return item;
}

TaskTokens task_tokens(const TextCodec& codec, std::string_view context, std::string_view ending,
                       std::string_view delimiter, std::string_view origin) {
  const std::string_view text = stripped(context);
  const bool has_space = text.size() < context.size() || begins_with_space(ending);
  const std::string whole =
      fmt::format("{}{}{}", context, has_space ? std::string_view() : delimiter, ending);
  TaskTokens out;
  size_t before = 0;  // tokens of the context
  if (text.empty()) {
    if (!codec.start()) {
      throw base::ConfigError(
          fmt::format("{}: the context is empty, and the tokenizer has no token that begins a "
                      "text; give a context",
                      origin));
    }
    out.tokens.push_back(*codec.start());
    before = 1;
    const std::vector<int32_t> rest = codec.encode_plain(whole);
    out.tokens.insert(out.tokens.end(), rest.begin(), rest.end());
  } else {
    out.tokens = codec.encode_plain(whole);
    before = codec.encode_plain(text).size();
  }
  if (out.tokens.size() <= before) {
    throw base::ConfigError(
        fmt::format("{}: the ending '{}' has no token after its context", origin, ending));
  }
  out.ending = out.tokens.size() - before;
  return out;
}

}  // namespace trireme::train
