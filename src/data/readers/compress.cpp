// SPDX-License-Identifier: Apache-2.0
#include "data/readers/compress.h"

namespace trireme::data {

void append_compressed(Compression compression, std::string_view bytes, std::string& out) {
  switch (compression) {
    case Compression::gzip:
      return append_gzip(bytes, out);
    case Compression::zstd:
      return append_zstd(bytes, out);
    case Compression::none:
      break;
  }
  out.append(bytes);
}

}  // namespace trireme::data
