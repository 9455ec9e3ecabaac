// SPDX-License-Identifier: Apache-2.0
// The safetensors file: u64 little-endian header length, a JSON header, then the tensors' bytes
// without holes. The reader trusts no input: an opened file has been checked in full, apart from
// the values of the tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/system/descriptor.h"
#include "base/system/mapped_ranges.h"

namespace trireme::ckpt {

// A view of one tensor: little-endian elements in C order. `dtype` is spelled as in the file
// ("F32", "BF16", ...). An empty shape is a scalar, one element; a dimension of 0 means no bytes.
struct SafetensorsView {
  std::string dtype;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
};

using SafetensorsMetadata = std::map<std::string, std::string, std::less<>>;

// A safetensors file mapped for reading. Views stay valid while the object lives, also after a
// move. They start on a multiple of the element size only if the writer padded its header: copy
// elements out, do not cast the pointer. Any thread may read. REQUIRES: the file is not truncated
// or written in place meanwhile (replacing it by rename is fine).
class SafetensorsFile {
 public:
  // Throws IoError that names the file, the tensor, what was found and what is allowed.
  static SafetensorsFile open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  // Returns every name with its view, sorted by name.
  const std::map<std::string, SafetensorsView, std::less<>>& tensors() const { return tensors_; }
  bool contains(std::string_view name) const { return tensors_.contains(name); }
  // Throws IoError if no tensor has this name.
  const SafetensorsView& tensor(std::string_view name) const;
  // `__metadata__`; empty if the file has none.
  const SafetensorsMetadata& metadata() const { return metadata_; }

 private:
  struct Unmap {
    size_t size;
    void operator()(const std::byte* start) const noexcept;
  };

  SafetensorsFile() = default;
  void read_header();

  std::filesystem::path path_;
  std::unique_ptr<const std::byte, Unmap> file_;
  base::MappedRange range_;  // ends before the mapping does
  std::map<std::string, SafetensorsView, std::less<>> tensors_;
  SafetensorsMetadata metadata_;
};

// Writes the same file from tensors that need not be in memory: their bytes are passed in any
// order, in parts of any size. The layout, REQUIRES and errors of write_safetensors() apply.
struct SafetensorsInfo {
  std::string dtype;
  std::vector<int64_t> shape;
};
class SafetensorsWriter {
 public:
  SafetensorsWriter(std::filesystem::path path,
                    const std::map<std::string, SafetensorsInfo, std::less<>>& tensors,
                    const SafetensorsMetadata& metadata);
  // Removes the file unless finish() has returned.
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  // Writes bytes of a tensor, starting at its byte `offset`.
  void write(std::string_view name, int64_t offset, std::span<const std::byte> bytes);
  // REQUIRES: all bytes of all tensors were written.
  void finish();

 private:
  struct Place {
    int64_t offset = 0, bytes = 0;  // in the file
  };

  std::filesystem::path path_, temporary_;
  std::map<std::string, Place, std::less<>> places_;
  std::optional<base::Descriptor> descriptor_;
  int64_t missing_bytes_ = 0;
};

// Writes `tensors` beside `path`, syncs, and renames over `path`: a reader sees the old file or the
// complete new one. Tensors are laid out by descending alignment (equal ones by dtype, then by
// name), so the same content gives the same bytes. Hugging Face loaders require {"format": "pt"} in
// `metadata`; the caller adds it. Throws IoError if the file cannot be written or a name is not
// UTF-8; then no temporary file is left. REQUIRES: dtypes are safetensors names, every view has the
// bytes of its shape, no tensor is called "__metadata__".
void write_safetensors(const std::filesystem::path& path,
                       const std::map<std::string, SafetensorsView, std::less<>>& tensors,
                       const SafetensorsMetadata& metadata);

}  // namespace trireme::ckpt
