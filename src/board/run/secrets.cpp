// SPDX-License-Identifier: Apache-2.0
#include "board/run/secrets.h"

#include <array>

#include "base/text/json.h"

namespace trireme::board {
namespace {

std::string lower_name(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const char small = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    out += small == '-' || small == '.' ? '_' : small;
  }
  return out;
}

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n'; }

// Replaces the password of "scheme://user:password@host".
void mask_address(std::string& text) {
  const size_t scheme = text.find("://");
  if (scheme == std::string::npos) return;
  const size_t begin = scheme + 3;
  const size_t end = text.find_first_of("/?# \t\n", begin);
  const size_t at = text.substr(0, end).rfind('@');
  if (at == std::string::npos || at < begin) return;
  text.replace(begin, at - begin, secret_mask);
}

// Replaces what follows "=" in one word of a command, if the name before it is that of a secret.
void mask_assignment(std::string& word) {
  size_t begin = 0;
  while (begin != std::string::npos) {
    const size_t equal = word.find('=', begin);
    if (equal == std::string::npos) return;
    const std::string name = word.substr(begin, equal - begin);
    const size_t end = word.find('&', equal);
    if (names_secret(name)) {
      word.replace(equal + 1, end == std::string::npos ? end : end - equal - 1, secret_mask);
    }
    const size_t next = word.find('&', equal);
    begin = next == std::string::npos ? next : next + 1;
  }
}

}  // namespace

bool names_secret(std::string_view key) {
  std::string name = lower_name(key);
  const size_t cut = name.find_last_of("?&/");
  if (cut != std::string::npos) name = name.substr(cut + 1);
  constexpr std::array<std::string_view, 10> parts = {
      "secret", "password",    "passwd",  "passphrase",    "credential",
      "apikey", "private_key", "webhook", "authorization", "cookie"};
  for (const std::string_view part : parts) {
    if (name.find(part) != std::string::npos) return true;
  }
  for (const std::string_view last : {"token", "api_key", "access_key", "auth", "bearer"}) {
    if (name.ends_with(last)) return true;
  }
  return name == "key";
}

std::string masked_text(std::string_view text) {
  if (text.find_first_of("=:-") == std::string_view::npos) return std::string(text);
  std::string out, word;
  bool is_secret_next = false;
  const auto flush = [&] {
    if (word.empty()) return;
    if (is_secret_next && !word.starts_with('-')) {
      word = secret_mask;
      is_secret_next = false;
    } else {
      is_secret_next =
          word.starts_with('-') && word.find('=') == std::string::npos && names_secret(word);
      mask_assignment(word);
      mask_address(word);
    }
    out += word;
    word.clear();
  };
  for (const char c : text) {
    if (is_blank(c)) {
      flush();
      out += c;
    } else {
      word += c;
    }
  }
  flush();
  return out;
}

base::Json masked(const base::Json& value) {
  if (value.is_string()) return masked_text(value.get_ref<const std::string&>());
  if (value.is_array()) {
    base::Json out = base::Json::array();
    for (const base::Json& one : value) out.push_back(masked(one));
    return out;
  }
  if (!value.is_object()) return value;
  base::Json out = base::Json::object();
  for (const auto& [key, one] : value.items()) {
    const std::string name = lower_name(key);
    const bool is_environment = name == "env" || name == "environment";
    if (is_environment && one.is_object()) {
      base::Json hidden = base::Json::object();
      for (const auto& [variable, ignored] : one.items()) hidden[variable] = secret_mask;
      out[key] = std::move(hidden);
    } else if (names_secret(key) && (one.is_string() || one.is_number()) &&
               !(one.is_string() && one.get_ref<const std::string&>().empty())) {
      out[key] = secret_mask;
    } else {
      out[key] = masked(one);
    }
  }
  return out;
}

}  // namespace trireme::board
