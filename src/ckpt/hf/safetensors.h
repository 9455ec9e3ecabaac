// SPDX-License-Identifier: Apache-2.0
// The safetensors file: u64 little-endian header length, a JSON header, then the tensors' bytes
// without holes. The reader trusts nothing: a file that opens has been checked in full, apart from
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
  // Every name with its view, in the order of names.
  const std::map<std::string, SafetensorsView, std::less<>>& tensors() const { return tensors_; }
  bool contains(std::string_view name) const { return tensors_.contains(name); }
  // Throws IoError if there is no tensor of this name.
  const SafetensorsView& tensor(std::string_view name) const;
  // `__metadata__`; empty when the file has none.
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

// The same file from tensors that need not be in memory: their bytes come in any order, in parts of
// any size. What write_safetensors() says of the layout, of REQUIRES and of errors holds here too.
struct SafetensorsInfo {
  std::string dtype;
  std::vector<int64_t> shape;
};
class SafetensorsWriter {
 public:
  SafetensorsWriter(std::filesystem::path path,
                    const std::map<std::string, SafetensorsInfo, std::less<>>& tensors,
                    const SafetensorsMetadata& metadata);
  // Removes what was written unless finish() has returned.
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  // Bytes of a tensor from its byte `offset` on.
  void write(std::string_view name, int64_t offset, std::span<const std::byte> bytes);
  // REQUIRES: as many bytes as the tensors have were written.
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
// whole new one. Tensors are laid out by descending alignment (equal ones by dtype, then by name),
// so the same content gives the same bytes. Loaders of the Hugging Face family want {"format":
// "pt"} in `metadata`; the caller adds it. REQUIRES: dtypes are safetensors names, every view has
// the bytes of its shape, no tensor is called "__metadata__". Throws IoError if the file cannot be
// written or a name is not UTF-8; then no temporary file stays behind.
void write_safetensors(const std::filesystem::path& path,
                       const std::map<std::string, SafetensorsView, std::less<>>& tensors,
                       const SafetensorsMetadata& metadata);

}  // namespace trireme::ckpt
