// SPDX-License-Identifier: Apache-2.0
// Compression of blocks. A gzip member or zstd frame is complete by itself, and files of several
// are read as one stream, so that blocks can be compressed on any thread. The back ends are in
// zlib/ and zstd/; no_zlib.cpp and no_zstd.cpp take their place in a build without the libraries.
#pragma once

#include <string>
#include <string_view>

#include "data/readers/byte_stream.h"

namespace trireme::data {

// Append one member or frame with `bytes` to `out`. Throw ConfigError in a build without the
// library.
void append_gzip(std::string_view bytes, std::string& out);
void append_zstd(std::string_view bytes, std::string& out);

void append_compressed(Compression compression, std::string_view bytes, std::string& out);

}  // namespace trireme::data
