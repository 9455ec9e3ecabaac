// SPDX-License-Identifier: Apache-2.0
// Compression of answers for clients that ask for it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "board/request.h"

namespace trireme::board {

// Returns whether Accept-Encoding allows gzip, and not with the weight 0.
bool takes_gzip(const Request& request);

// Returns none in a build without zlib.
std::optional<std::string> gzip_of(std::string_view bytes);

// Compresses the body if the client takes gzip, unless the answer is a stream, small or compressed.
void compress_body(const Request& request, Response& response);

}  // namespace trireme::board
