// SPDX-License-Identifier: Apache-2.0
#include "board/gate.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "base/check.h"
#include "base/error.h"
#include "base/sha256.h"

namespace trireme::board {
namespace {

constexpr const char* content_policy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src "
    "'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'";

bool is_ip_literal(const std::string& host) {
  std::array<unsigned char, sizeof(in6_addr)> address{};
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    return ::inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), address.data()) == 1;
  }
  return ::inet_pton(AF_INET, host.c_str(), address.data()) == 1;
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

std::string_view cookie_of(std::string_view cookies, std::string_view name) {
  while (!cookies.empty()) {
    const size_t end = cookies.find(';');
    std::string_view one = cookies.substr(0, end);
    while (one.starts_with(' ')) one.remove_prefix(1);
    const size_t equal = one.find('=');
    if (equal != std::string_view::npos && one.substr(0, equal) == name) {
      return one.substr(equal + 1);
    }
    if (end == std::string_view::npos) break;
    cookies.remove_prefix(end + 1);
  }
  return {};
}

}  // namespace

Gate::Gate(Options options) : options_(std::move(options)) {
  TRIREME_CHECK(options_.token.size() >= 16, "a token of {} characters", options_.token.size());
  base::Sha256 hash;
  hash.update(std::as_bytes(std::span(options_.token)));
  cookie_name_ = "trireme_" + hash.hex().substr(0, 12);
  for (std::string& host : options_.hosts) host = lower(host);
}

// Returns whether the value of Host names this server and not a name that an attacker's DNS server
// resolves to its address.
bool Gate::is_ours(std::string_view host) const {
  std::string name = lower(host);
  const size_t bracket = name.rfind(']');
  const size_t colon = name.rfind(':');
  int port = 80;
  if (colon != std::string::npos && (bracket == std::string::npos || colon > bracket)) {
    const char* end = name.data() + name.size();
    const auto [at, error] = std::from_chars(name.data() + colon + 1, end, port);
    if (error != std::errc() || at != end) return false;
    name.resize(colon);
  }
  if (options_.port != 0 && port != options_.port) return false;
  return name == "localhost" || is_ip_literal(name) ||
         std::find(options_.hosts.begin(), options_.hosts.end(), name) != options_.hosts.end();
}

bool Gate::has_token(const Request& request) const {
  if (const auto cookies = request.header("cookie")) {
    if (is_equal_secret(cookie_of(*cookies, cookie_name_), options_.token)) return true;
  }
  constexpr std::string_view bearer = "Bearer ";
  const auto authorization = request.header("authorization");
  return authorization && authorization->starts_with(bearer) &&
         is_equal_secret(authorization->substr(bearer.size()), options_.token);
}

std::optional<Response> Gate::check(const Request& request) const {
  const auto host = request.header("host");
  if (!host || !is_ours(*host)) {
    return error_response(
        421, fmt::format("this board is not called '{}': open the address that `trireme board` "
                         "printed; a forwarded port must have the same number (ssh -L "
                         "{}:localhost:{}); other names are given with --host",
                         host.value_or(""), options_.port, options_.port));
  }
  if (request.method != "GET" && request.method != "HEAD") {
    Response refused = error_response(405, "the board only reads: use GET or HEAD");
    refused.headers.emplace_back("Allow", "GET, HEAD");
    return refused;
  }
  const auto origin = request.header("origin");
  const auto site = request.header("sec-fetch-site");
  const bool is_own_origin = !origin || lower(*origin) == "http://" + lower(*host) ||
                             lower(*origin) == "https://" + lower(*host);
  const bool is_own_site = !site || *site == "same-origin" || *site == "none";
  if (!is_own_origin || !is_own_site) {
    return error_response(403, "the board answers its own pages only: type or paste its address");
  }
  const bool is_open =
      options_.metrics_are_open && (request.path == "/metrics" || request.path == "/healthz");
  if (is_open || has_token(request)) {
    // The address bar shall not keep the token.
    if (request.path != "/" || !request.parameter("token")) return std::nullopt;
  }
  if (const auto token = request.parameter("token")) {
    if (is_equal_secret(*token, options_.token)) {
      if (request.path != "/") return std::nullopt;
      Response moved{.status = 303, .type = "text/plain; charset=utf-8"};
      moved.headers.emplace_back("Location", "/");
      moved.headers.emplace_back(
          "Set-Cookie",
          fmt::format("{}={}; Path=/; HttpOnly; SameSite=Strict", cookie_name_, options_.token));
      return moved;
    }
  }
  return error_response(401,
                        "the token is missing or wrong: open the whole address that `trireme "
                        "board` printed");
}

void Gate::add_headers(const Request& request, Response& response) {
  response.headers.emplace_back("Content-Security-Policy", content_policy);
  response.headers.emplace_back("X-Content-Type-Options", "nosniff");
  response.headers.emplace_back("Referrer-Policy", "no-referrer");
  response.headers.emplace_back("X-Frame-Options", "DENY");
  response.headers.emplace_back("Cross-Origin-Resource-Policy", "same-origin");
  const bool is_page = request.path == "/" || request.path.starts_with("/app/");
  response.headers.emplace_back(
      "Cache-Control",
      is_page && response.status < 400 && response.status != 303 ? "no-cache" : "no-store");
}

std::string random_token() {
  std::array<unsigned char, 16> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    throw base::IoError("the system has no random numbers for a token; give --token-file");
  }
  std::string token;
  for (const unsigned char byte : bytes) token += fmt::format("{:02x}", byte);
  return token;
}

bool is_equal_secret(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;  // lengths are no secret
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference |= static_cast<unsigned>(static_cast<unsigned char>(a[i])) ^
                  static_cast<unsigned>(static_cast<unsigned char>(b[i]));
  }
  return difference == 0;
}

}  // namespace trireme::board
