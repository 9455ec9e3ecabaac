// SPDX-License-Identifier: Apache-2.0
// Gate: which requests reach a handler. Other users of the machine can connect to a loopback port,
// and any page that a browser shows can send requests to it, so every request must name this server
// (Host), come from its own pages (Origin, Sec-Fetch-Site) and carry the token.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "board/request.h"

namespace trireme::board {

class Gate {
 public:
  struct Options {
    std::string token;               // at least 16 characters
    int port = 0;                    // 0: a Unix socket, where any port of Host is accepted
    std::vector<std::string> hosts;  // names that are accepted beside localhost and IP literals
    bool metrics_are_open = false;   // /metrics and /healthz need no token
  };
  explicit Gate(Options options);

  // Returns the response that refuses the request, or that stores the token in a cookie; nothing if
  // the request may be handled.
  std::optional<Response> check(const Request& request) const;

  const std::string& cookie_name() const { return cookie_name_; }

  // Adds the headers of every response: content security policy, no sniffing, no referrer.
  static void add_headers(const Request& request, Response& response);

 private:
  bool is_ours(std::string_view host) const;
  bool has_token(const Request& request) const;

  Options options_;
  std::string cookie_name_;  // cookies do not depend on the port, so each server has another name
};

// 128 random bits from the system as 32 hexadecimal digits. Throws IoError.
std::string random_token();

// Compares in a time that does not depend on where the texts differ.
bool is_equal_secret(std::string_view a, std::string_view b);

}  // namespace trireme::board
