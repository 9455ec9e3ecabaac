// SPDX-License-Identifier: Apache-2.0
#include "board/report/page_text.h"

#include <fmt/format.h>

#include <set>

#include "base/error.h"
#include "base/sha256.h"

namespace trireme::board {
namespace {

std::string replaced(std::string text, std::string_view what, std::string_view by) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size()) {
    text.replace(at, what.size(), by);
  }
  return text;
}

std::string bytes_from_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

// Adds a module after those that it imports.
struct Joiner {
  const std::function<std::string(const std::string&)>& read;
  std::set<std::string> done, open;
  std::string out;

  void add(const std::string& name) {
    if (done.contains(name)) return;
    if (!open.insert(name).second) {
      throw base::ConfigError(fmt::format("{}: imports itself, directly or by others", name));
    }
    const std::string text = read(name);
    std::string body;
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find('\n', begin), text.size());
      std::string_view line = std::string_view(text).substr(begin, end - begin);
      begin = end + 1;
      constexpr std::string_view import_mark = "import ", export_mark = "export ";
      if (line.starts_with(import_mark)) {
        const size_t from = line.find("'./"), to = line.rfind('\'');
        if (from == std::string_view::npos || to <= from + 3) {
          throw base::ConfigError(fmt::format("{}: cannot be joined: {}", name, line));
        }
        add(std::string(line.substr(from + 3, to - from - 3)));
        continue;
      }
      if (line.starts_with(export_mark)) line.remove_prefix(export_mark.size());
      body += line;
      body += '\n';
    }
    out += body;
    open.erase(name);
    done.insert(name);
  }
};

}  // namespace

std::string html_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string json_in_html(std::string_view json) {
  std::string out;
  out.reserve(json.size() + json.size() / 16);
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    const std::string_view three = json.substr(i, 3);
    if (c == '<') {
      out += "\\u003c";
    } else if (c == '>') {
      out += "\\u003e";
    } else if (c == '&') {
      out += "\\u0026";
    } else if (three == "\u2028" || three == "\u2029") {
      out += three == "\u2028" ? "\\u2028" : "\\u2029";
      i += 2;
    } else {
      out += c;
    }
  }
  return out;
}

std::string script_in_html(std::string_view script) {
  return replaced(replaced(std::string(script), "</script", "<\\/script"), "<!--", "<\\!--");
}

std::string base64_of(std::string_view bytes) {
  constexpr std::string_view digits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const auto byte = [&](size_t at) {
      return at < bytes.size() ? static_cast<unsigned>(static_cast<unsigned char>(bytes[at])) : 0U;
    };
    const unsigned three = byte(i) << 16 | byte(i + 1) << 8 | byte(i + 2);
    out += digits[three >> 18 & 63];
    out += digits[three >> 12 & 63];
    out += i + 1 < bytes.size() ? digits[three >> 6 & 63] : '=';
    out += i + 2 < bytes.size() ? digits[three & 63] : '=';
  }
  return out;
}

std::string policy_hash(std::string_view text) {
  base::Sha256 hash;
  hash.update(std::as_bytes(std::span(text)));
  return fmt::format("'sha256-{}'", base64_of(bytes_from_hex(hash.hex())));
}

std::string joined_modules(const std::string& main,
                           const std::function<std::string(const std::string&)>& read) {
  Joiner joiner{.read = read};
  joiner.add(main);
  return joiner.out;
}

}  // namespace trireme::board
