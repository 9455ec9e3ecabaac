// SPDX-License-Identifier: Apache-2.0
// The files of a checkpoint as data and as text (docs/formats.md, "Checkpoints"), format version 1.
// A checkpoint is a folder with one data file and one index per writing rank, and one manifest. The
// parsers trust no input: what they return is self-consistent, and their memory is bounded by the
// length of the text.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/text/json.h"
#include "ckpt/disk/hash.h"

namespace trireme::ckpt {

constexpr int format_version = 1;
// The unit of hashing and reading in a data file, padding included.
constexpr int64_t chunk_bytes = int64_t{1} << 20;
// Limits of an index and a manifest.
constexpr int64_t max_index_bytes = int64_t{1} << 30;
constexpr int64_t max_manifest_bytes = int64_t{1} << 26;
constexpr int max_ndim = 8;
constexpr size_t max_name_bytes = 512;

// A whole tensor of the model or the optimizer, independent of the ranks that hold it. The name is
// opaque here: 1 to max_name_bytes printable ASCII characters without spaces.
struct TensorInfo {
  std::string name;
  base::DType dtype = base::DType::f32;
  std::vector<int64_t> shape;  // 1 to max_ndim dimensions of at least 1; below 2^60 bytes in all
  bool operator==(const TensorInfo&) const = default;
};

// A box [lo, hi) of a tensor: its elements in row-major order, little-endian, starting at byte
// `offset` of the data file.
struct SavedBox {
  std::vector<int64_t> lo, hi;
  int64_t offset = 0;
  bool operator==(const SavedBox&) const = default;
};
int64_t elements_of(const SavedBox&);

struct SavedTensor {
  TensorInfo tensor;
  std::vector<SavedBox> boxes;
  bool operator==(const SavedTensor&) const = default;
};

// The contents of one data file. Boxes follow each other, each at a multiple of page_bytes; the
// gaps are zero.
struct Index {
  int rank = 0;
  int64_t data_bytes = 0;  // a multiple of page_bytes
  std::vector<SavedTensor> tensors;
  std::vector<Hash> chunks;
  bool operator==(const Index&) const = default;
};

// The files of one rank. The hash is that of the index, which contains the hashes of the data.
struct FileInfo {
  int rank = 0;
  int64_t data_bytes = 0, index_bytes = 0;
  Hash index_hash;
  bool operator==(const FileInfo&) const = default;
};

// The run that wrote a checkpoint and its epoch, the count of owners of the run's folder. A run
// that was taken over has a smaller epoch than its successor.
struct Writer {
  std::string run;  // letters and digits; empty: unknown, as in checkpoints of older builds
  int64_t epoch = 0;
  bool operator==(const Writer&) const = default;
};
bool is_run_id(std::string_view text);  // 1 to 32 letters and digits

struct Manifest {
  int64_t step = 0;
  Writer writer;
  std::vector<TensorInfo> tensors;          // names are unique
  std::vector<FileInfo> files;              // by rank, ascending
  base::Json state = base::Json::object();  // the trainer's state besides tensors
  base::Json plan = base::Json::object();   // the resolved plan
  bool operator==(const Manifest&) const = default;
};

std::string to_text(const Index&);
std::string to_text(const Manifest&);

// An index that refers to its parts instead of owning them.
struct IndexView {
  int rank = 0;
  int64_t data_bytes = 0;
  std::span<const SavedTensor> tensors;
  std::span<const Hash> chunks;
};
// Returns the size of an index text with `chunks` chunks; the hashes themselves are not read.
int64_t index_text_bytes(const IndexView&, int64_t chunks);
// REQUIRES: `to` has the same number of chunks.
void write_index_text(const IndexView&, std::span<char> to);

// Throw IoError with `where` (the path), what is wrong, and what is allowed.
Index parse_index(std::string_view text, const std::string& where);
Manifest parse_manifest(std::string_view text, const std::string& where);

// ---- names
std::string data_name(int rank);   // "data-00003"
std::string index_name(int rank);  // "index-00003"
constexpr const char* manifest_name = "manifest";

// ---- shared by both texts
// Returns an empty string, or the rule that the tensor breaks.
std::string broken_rule(const TensorInfo&);
int64_t bytes_of(const TensorInfo&);
// Returns `body` followed by its hash as the last line.
std::string sealed(std::string body);
// Formats and parses that line.
std::string seal_of(std::string_view body);
constexpr int64_t seal_bytes = 42;
// Returns the text before the last line after checking that this line is its hash. The first line
// must be "`title` 1"; another program's file and a newer version are distinguished from damage.
std::string_view unsealed(std::string_view text, std::string_view title, const std::string& where);

}  // namespace trireme::ckpt
