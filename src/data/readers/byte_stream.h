// SPDX-License-Identifier: Apache-2.0
// Bytes of an input file from its start to its end, decompressed if they are compressed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace trireme::data {

// Used from one thread.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  // Fills as much of `out` as there is, 0 at the end. Throws IoError that names the file.
  virtual size_t read(std::span<std::byte> out) = 0;
};

// The bytes as stored. stdin is the path "-".
class StoredBytes : public ByteStream {
 public:
  virtual int64_t bytes() const = 0;     // read so far
  virtual std::string hash() const = 0;  // XXH3-128 of them
};
// Throws IoError if `path` is neither "-" nor a regular file that can be read.
std::unique_ptr<StoredBytes> open_stored(const std::filesystem::path& path);

enum class Compression : uint8_t { none, gzip, zstd };
std::string_view name_of(Compression);  // "none", "gzip", "zstd"

// A shard's bytes: decompressed if the file begins with the magic number of gzip or zstd, whatever
// its name is; text in UTF-8 and tar archives cannot begin with either. A name that ends in .gz,
// .tgz, .zst or .zstd without the magic number is refused.
class ShardStream final : public ByteStream {
 public:
  explicit ShardStream(const std::filesystem::path& path);
  ~ShardStream() override;

  size_t read(std::span<std::byte> out) override;
  // Reads exactly out.size() bytes. Returns false if the stream ends before.
  bool read_all(std::span<std::byte> out);
  // Reads to the end, so that stored_bytes() and hash() cover the file.
  void drain();

  const std::string& name() const { return name_; }
  Compression compression() const { return compression_; }
  int64_t offset() const { return offset_; }  // decompressed bytes read so far
  int64_t stored_bytes() const { return stored_->bytes(); }
  std::string hash() const { return stored_->hash(); }

 private:
  std::string name_;
  std::unique_ptr<StoredBytes> stored_;
  std::unique_ptr<ByteStream> decompressed_;  // null: none; reads from *stored_
  Compression compression_ = Compression::none;
  std::array<std::byte, 4> start_{};  // read to find the compression
  size_t start_bytes_ = 0, start_used_ = 0;
  int64_t offset_ = 0;
};

}  // namespace trireme::data
