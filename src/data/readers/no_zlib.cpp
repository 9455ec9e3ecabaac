// SPDX-License-Identifier: Apache-2.0
// Replaces zlib/ in a build without zlib.
#include "base/error.h"
#include "data/readers/compress.h"
#include "data/readers/decompress.h"

namespace trireme::data {

std::unique_ptr<ByteStream> open_gzip(const CompressedInput& input) {
  throw base::ConfigError(input.name +
                          ": is compressed with gzip, and this build has no zlib: install "
                          "zlib1g-dev and configure again, or decompress the file");
}

void append_gzip(std::string_view, std::string&) {
  throw base::ConfigError(
      "gzip output: this build has no zlib: install zlib1g-dev and configure again, or write "
      "without compression");
}

}  // namespace trireme::data
