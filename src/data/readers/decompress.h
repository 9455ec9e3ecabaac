// SPDX-License-Identifier: Apache-2.0
// Decompression of streams. The back ends are in zlib/ and zstd/; no_zlib.cpp and no_zstd.cpp take
// their place in a build without the libraries.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "data/readers/byte_stream.h"

namespace trireme::data {

struct CompressedInput {
  ByteStream& stream;                // outlives the result
  std::span<const std::byte> start;  // bytes that were read from the stream already
  std::string name;                  // for messages
};

// Several members or frames, one after the other, are one stream. Zeros after the last gzip member
// are ignored, as gzip does. The result throws IoError for input that is truncated or damaged, and
// this function ConfigError in a build without the library.
std::unique_ptr<ByteStream> open_gzip(const CompressedInput&);
std::unique_ptr<ByteStream> open_zstd(const CompressedInput&);

}  // namespace trireme::data
