// SPDX-License-Identifier: Apache-2.0
// The part of HTTP/1.1 (RFC 9112) that a server of GET and HEAD needs: heads of requests without a
// body, and responses with a known length or in chunks. Whatever else a client sends is refused and
// its connection closed.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "board/request.h"

namespace trireme::board {

constexpr size_t max_head_bytes = 16 << 10;
constexpr size_t max_headers = 100;

// Returns the bytes of the head that `bytes` begins with, the empty line included; 0: it is
// incomplete.
size_t head_size(std::string_view bytes);

struct ParsedHead {
  int status = 200;  // otherwise the refusal: 400, 413, 414, 501 or 505
  Request request;
  bool keeps_alive = false;  // another request may follow on the connection
  bool is_http_10 = false;   // the client knows no chunks
};
// REQUIRES: `head` is complete.
ParsedHead parse_head(std::string_view head);

struct ResponseForm {
  bool keeps_alive = false;
  bool is_head = false;  // the request was HEAD: no body follows
  bool is_http_10 = false;
};
// Returns status line and headers. A response with a stream has chunks.
std::string response_head(const Response& response, const ResponseForm& form);
std::string chunk_of(std::string_view part);  // of a body in chunks; empty: the last one

}  // namespace trireme::board
