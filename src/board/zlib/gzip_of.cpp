// SPDX-License-Identifier: Apache-2.0
#include <zlib.h>

#include "base/check.h"
#include "board/gzip_body.h"

namespace trireme::board {

std::optional<std::string> gzip_of(std::string_view bytes) {
  if (bytes.size() > 0xFFFFFFFFU) return std::nullopt;
  z_stream z{};
  // A reader waits for the answer, so speed comes first. 16: the header and trailer of gzip.
  const int begun = deflateInit2(&z, Z_BEST_SPEED, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  TRIREME_CHECK(begun == Z_OK, "deflateInit2 returned {}", begun);
  std::string out(deflateBound(&z, static_cast<uLong>(bytes.size())), '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  z.avail_in = static_cast<uInt>(bytes.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  const int result = deflate(&z, Z_FINISH);
  TRIREME_CHECK(result == Z_STREAM_END, "deflate returned {}", result);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}

}  // namespace trireme::board
