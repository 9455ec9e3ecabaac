// SPDX-License-Identifier: Apache-2.0
#include "board/http/message.h"

#include <fmt/format.h>

#include <algorithm>

namespace trireme::board {
namespace {

constexpr size_t max_target_bytes = 8 << 10;

// Characters of tokens, RFC 9110 section 5.6.2.
bool is_token_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}
bool is_token(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_token_char);
}
bool is_visible(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7f; });
}

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ') || text.starts_with('\t')) text.remove_prefix(1);
  while (text.ends_with(' ') || text.ends_with('\t')) text.remove_suffix(1);
  return text;
}

std::string lower_text(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

// Takes a line with its end, CR LF.
std::string_view take_line(std::string_view& rest) {
  const size_t end = rest.find("\r\n");
  const std::string_view line = rest.substr(0, end);
  rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 2);
  return line;
}

// Returns the status of the refusal, or 200.
int parse_headers(std::string_view rest, Request& request) {
  size_t count = 0;
  while (true) {
    const std::string_view line = take_line(rest);
    if (line.empty()) return 200;
    if (++count > max_headers) return 400;
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos || !is_token(line.substr(0, colon))) return 400;
    const std::string_view value = trimmed(line.substr(colon + 1));
    const bool is_text = std::all_of(value.begin(), value.end(), [](char c) {
      const auto byte = static_cast<unsigned char>(c);
      return byte == '\t' || (byte >= 0x20 && byte != 0x7f);
    });
    if (!is_text) return 400;
    const auto [at, is_new] = request.headers.try_emplace(lower_text(line.substr(0, colon)), value);
    if (is_new) continue;
    // Two different hosts or tokens are an attempt to confuse.
    for (const char* single : {"host", "origin", "authorization", "content-length"}) {
      if (at->first == single) return 400;
    }
    at->second += at->first == "cookie" ? "; " : ", ";
    at->second += value;
  }
}

std::string_view reason_of(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 303:
      return "See Other";
    case 304:
      return "Not Modified";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Content Too Large";
    case 414:
      return "URI Too Long";
    case 421:
      return "Misdirected Request";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Other";
  }
}

}  // namespace

size_t head_size(std::string_view bytes) {
  const size_t end = bytes.find("\r\n\r\n");
  return end == std::string_view::npos ? 0 : end + 4;
}

ParsedHead parse_head(std::string_view head) {
  ParsedHead parsed;
  std::string_view rest = head;
  const std::string_view line = take_line(rest);
  const size_t first = line.find(' '), last = line.rfind(' ');
  const auto refused = [&](int status) {
    parsed.status = status;
    return parsed;
  };
  if (first == std::string_view::npos || first == last) return refused(400);
  const std::string_view method = line.substr(0, first);
  const std::string_view target = line.substr(first + 1, last - first - 1);
  const std::string_view version = line.substr(last + 1);
  if (!is_token(method) || !is_visible(target)) return refused(400);
  if (version != "HTTP/1.1" && version != "HTTP/1.0") return refused(505);
  parsed.is_http_10 = version == "HTTP/1.0";
  if (target.size() > max_target_bytes) return refused(414);
  // Only paths: neither addresses of other servers nor "*".
  if (!target.starts_with('/')) return refused(400);
  parsed.request = request_of(target);
  parsed.request.method = method;
  parsed.status = parse_headers(rest, parsed.request);
  if (parsed.status != 200) return parsed;
  if (parsed.request.header("transfer-encoding")) return refused(501);
  if (parsed.request.header("content-length").value_or("0") != "0") return refused(413);
  const std::string connection = lower_text(parsed.request.header("connection").value_or(""));
  parsed.keeps_alive = version == "HTTP/1.1" && connection.find("close") == std::string::npos;
  return parsed;
}

std::string response_head(const Response& response, const ResponseForm& form) {
  std::string out = fmt::format("HTTP/1.1 {} {}\r\n", response.status, reason_of(response.status));
  const auto add = [&](std::string_view name, std::string_view value) {
    // A line end in a value would begin another header.
    out += name;
    out += ": ";
    for (const char c : value) out += c == '\r' || c == '\n' ? ' ' : c;
    out += "\r\n";
  };
  for (const auto& [name, value] : response.headers) add(name, value);
  if (response.status != 304) {
    add("Content-Type", response.type);
    if (!response.stream) {
      add("Content-Length", std::to_string(response.body.size()));
    } else if (!form.is_http_10) {
      add("Transfer-Encoding", "chunked");
    }
  }
  add("Connection", form.keeps_alive ? "keep-alive" : "close");
  out += "\r\n";
  return out;
}

std::string chunk_of(std::string_view part) {
  return fmt::format("{:x}\r\n{}\r\n", part.size(), part);
}

}  // namespace trireme::board
