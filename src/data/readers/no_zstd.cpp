// SPDX-License-Identifier: Apache-2.0
// Replaces zstd/ in a build without libzstd.
#include "base/error.h"
#include "data/readers/compress.h"
#include "data/readers/decompress.h"

namespace trireme::data {

std::unique_ptr<ByteStream> open_zstd(const CompressedInput& input) {
  throw base::ConfigError(input.name +
                          ": is compressed with zstd, and this build has no libzstd: install "
                          "libzstd-dev and configure again, or decompress the file");
}

void append_zstd(std::string_view, std::string&) {
  throw base::ConfigError(
      "zstd output: this build has no libzstd: install libzstd-dev and configure again, or write "
      "without compression");
}

}  // namespace trireme::data
