// SPDX-License-Identifier: Apache-2.0
// Request and Response: what handlers see of HTTP. Handlers are functions of a request and of files
// that were read, so that tests call them without a socket.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text/json_fwd.h"

namespace trireme::board {

struct Request {
  std::string method = "GET";
  std::string path;                                        // decoded, without the query
  std::vector<std::pair<std::string, std::string>> query;  // decoded, in order
  std::map<std::string, std::string> headers;              // names in lower case

  // Returns the first value; none if the request has no such parameter or header.
  std::optional<std::string_view> parameter(std::string_view name) const;
  std::optional<std::string_view> header(std::string_view lower_name) const;
};

// Receives a part of a body; returns false if the client has left. An empty part only asks.
using Sink = std::function<bool(std::string_view)>;

struct Response {
  int status = 200;
  std::string type = "application/json; charset=utf-8";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;  // beside the usual ones
  std::function<void(const Sink&)> stream;                   // instead of `body`, if it is set
};

Response json_response(const base::Json& value);
Response error_response(int status, std::string_view message);  // {"error":"..."}

// Returns the text with U+FFFD in place of bytes that are not UTF-8.
std::string valid_text(std::string_view text);
// Returns JSON text; bytes that are not UTF-8 become U+FFFD.
std::string text_of(const base::Json& value);

// Parses "/api/runs?x=1" with percent-encoding. For tests and reports.
Request request_of(std::string_view url);
// Encodes all bytes but letters, digits and -_.!~*'(), as encodeURIComponent() does.
std::string percent_encoded(std::string_view text);

}  // namespace trireme::board
