// SPDX-License-Identifier: Apache-2.0
// MosaicML Streaming's MDS: a folder with index.json and shards of samples with named columns.
//   index.json  {"version": 2, "shards": [{"format": "mds", "column_names", "column_encodings",
//               "column_sizes", "samples", "compression", "raw_data": {"basename", "bytes"},
//               "zip_data": null or the same of the compressed shard}, ...]}
//   shard       u32 samples N | u32[N + 1] where each sample begins, and the end of the file |
//               JSON of the columns | samples
//   sample      u32 for each column without a fixed size: its bytes | the columns
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/readers/byte_stream.h"

namespace trireme::data {

struct MdsColumn {
  std::string name, encoding;  // "str", "bytes", "json", "int", ...
  std::optional<uint32_t> fixed_bytes;
};

struct MdsShard {
  std::filesystem::path file;  // the shard as it is stored
  int64_t stored_bytes = 0;
  int64_t raw_bytes = 0;                        // decompressed
  Compression compression = Compression::none;  // of the file
  uint32_t samples = 0;
  std::vector<MdsColumn> columns;
};

// Reads and checks index.json. Of every shard the raw file is taken if it exists, otherwise the
// compressed one. Throws IoError that names the file and the key, and for a shard that is missing
// or has another size than the index lists.
std::vector<MdsShard> read_mds_index(const std::filesystem::path& folder);
// The same of the index's text; looks for the shards in `folder`.
std::vector<MdsShard> parse_mds_index(std::string_view text, const std::filesystem::path& folder);

// Reads the samples of a shard in order. Throws IoError if the shard contradicts the index.
class MdsReader {
 public:
  // REQUIRES: stream and shard outlive the reader.
  MdsReader(ShardStream& stream, const MdsShard& shard);

  // Reads the next sample's bytes into `sample`; one of more than max_bytes is skipped and leaves
  // `sample` empty. Returns false at the end of the shard.
  bool next(std::string& sample, int64_t max_bytes);
  int64_t offset() const { return offset_; }  // of the sample
  uint32_t sample_bytes() const { return bytes_; }
  uint32_t index() const { return at_ - 1; }

  // Returns the bytes of a column in a sample. Throws IoError if the sizes do not add up.
  std::string_view column(std::string_view sample, size_t column) const;

 private:
  ShardStream& stream_;
  const MdsShard& shard_;
  std::vector<uint32_t> begins_;
  uint32_t at_ = 0;
  int64_t offset_ = 0;
  uint32_t bytes_ = 0;
};

}  // namespace trireme::data
