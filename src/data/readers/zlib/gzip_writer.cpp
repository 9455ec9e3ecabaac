// SPDX-License-Identifier: Apache-2.0
#include <zlib.h>

#include "base/check.h"
#include "data/readers/compress.h"

namespace trireme::data {

void append_gzip(std::string_view bytes, std::string& out) {
  z_stream z{};
  // 16: the header and trailer of gzip, with its checksum and without a time.
  TRIREME_CHECK(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK,
                "deflateInit2 failed");
  TRIREME_CHECK(bytes.size() <= 0xFFFFFFFFU, "a block of {} bytes", bytes.size());
  const size_t before = out.size();
  const size_t bound = deflateBound(&z, static_cast<uLong>(bytes.size()));
  out.resize(before + bound);
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  z.avail_in = static_cast<uInt>(bytes.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data() + before);
  z.avail_out = static_cast<uInt>(bound);
  const int result = deflate(&z, Z_FINISH);
  TRIREME_CHECK(result == Z_STREAM_END, "deflate returned {}", result);
  out.resize(before + z.total_out);
  deflateEnd(&z);
}

}  // namespace trireme::data
