// SPDX-License-Identifier: Apache-2.0
#include "board/request.h"

#include <fmt/format.h>

#include "base/text/json.h"

namespace trireme::board {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::string percent_decoded(std::string_view text, bool plus_is_space) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && hex_digit(text[i + 1]) >= 0 &&
        hex_digit(text[i + 2]) >= 0) {
      out += static_cast<char>(hex_digit(text[i + 1]) * 16 + hex_digit(text[i + 2]));
      i += 2;
    } else {
      out += text[i] == '+' && plus_is_space ? ' ' : text[i];
    }
  }
  return out;
}

}  // namespace

std::optional<std::string_view> Request::parameter(std::string_view name) const {
  for (const auto& [key, value] : query) {
    if (key == name) return value;
  }
  return std::nullopt;
}

std::optional<std::string_view> Request::header(std::string_view lower_name) const {
  const auto found = headers.find(std::string(lower_name));
  if (found == headers.end()) return std::nullopt;
  return found->second;
}

std::string text_of(const base::Json& value) {
  return value.dump(-1, ' ', false, base::Json::error_handler_t::replace);
}

std::string valid_text(std::string_view text) {
  return base::Json::parse(text_of(base::Json(text))).get<std::string>();
}

Response json_response(const base::Json& value) { return {.body = text_of(value)}; }

Response error_response(int status, std::string_view message) {
  return {.status = status, .body = text_of({{"error", message}})};
}

Request request_of(std::string_view url) {
  Request request;
  const size_t mark = url.find('?');
  request.path = percent_decoded(url.substr(0, mark), false);
  if (mark == std::string_view::npos) return request;
  std::string_view rest = url.substr(mark + 1);
  while (!rest.empty()) {
    const size_t end = rest.find('&');
    const std::string_view pair = rest.substr(0, end);
    const size_t equal = pair.find('=');
    const std::string_view value =
        equal == std::string_view::npos ? std::string_view() : pair.substr(equal + 1);
    if (!pair.empty()) {
      request.query.emplace_back(percent_decoded(pair.substr(0, equal), true),
                                 percent_decoded(value, true));
    }
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + 1);
  }
  return request;
}

std::string percent_encoded(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') ||
                          std::string_view("-_.!~*'()").find(c) != std::string_view::npos;
    if (is_plain) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

}  // namespace trireme::board
