// SPDX-License-Identifier: Apache-2.0
// Replaces zlib/ in a build without zlib.
#include "board/gzip_body.h"

namespace trireme::board {

std::optional<std::string> gzip_of(std::string_view) { return std::nullopt; }

}  // namespace trireme::board
