// SPDX-License-Identifier: Apache-2.0
#include "data/readers/byte_stream.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "base/error.h"
#include "base/system/descriptor.h"
#include "data/readers/content_hash.h"
#include "data/readers/decompress.h"

namespace trireme::data {
namespace {

base::IoError cannot_read(const std::string& name, int error) {
  return base::IoError(
      fmt::format("{}: cannot be read: {}", name, std::generic_category().message(error)));
}

class DescriptorBytes final : public StoredBytes {
 public:
  DescriptorBytes(base::Descriptor descriptor, std::string name)
      : descriptor_(std::move(descriptor)), name_(std::move(name)) {}

  size_t read(std::span<std::byte> out) override {
    size_t done = 0;
    while (done < out.size()) {
      const ssize_t count = ::read(descriptor_.value(), out.data() + done, out.size() - done);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) throw cannot_read(name_, errno);
      if (count == 0) break;
      done += static_cast<size_t>(count);
    }
    hash_.add(out.first(done));
    bytes_ += static_cast<int64_t>(done);
    return done;
  }

  int64_t bytes() const override { return bytes_; }
  std::string hash() const override { return hash_.hex(); }

 private:
  base::Descriptor descriptor_;
  std::string name_;
  ContentHash hash_;
  int64_t bytes_ = 0;
};

bool ends_like(const std::string& name, Compression compression) {
  if (compression == Compression::gzip) return name.ends_with(".gz") || name.ends_with(".tgz");
  return name.ends_with(".zst") || name.ends_with(".zstd");
}

}  // namespace

std::string_view name_of(Compression compression) {
  constexpr std::array<std::string_view, 3> names = {"none", "gzip", "zstd"};
  return names[static_cast<size_t>(compression)];
}

std::unique_ptr<StoredBytes> open_stored(const std::filesystem::path& path) {
  if (path == "-") {
    return std::make_unique<DescriptorBytes>(base::Descriptor(::dup(STDIN_FILENO)), "stdin");
  }
  base::Descriptor descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (descriptor.value() < 0) throw cannot_read(path.string(), errno);
  struct stat status {};
  if (::fstat(descriptor.value(), &status) != 0) throw cannot_read(path.string(), errno);
  if (!S_ISREG(status.st_mode)) {
    throw base::IoError(fmt::format(
        "{}: cannot be read: it is not a regular file; give - to read stdin", path.string()));
  }
  ::posix_fadvise(descriptor.value(), 0, 0, POSIX_FADV_SEQUENTIAL);
  return std::make_unique<DescriptorBytes>(std::move(descriptor), path.string());
}

ShardStream::ShardStream(const std::filesystem::path& path)
    : name_(path == "-" ? "stdin" : path.string()), stored_(open_stored(path)) {
  constexpr std::array<std::byte, 4> zstd_magic = {std::byte{0x28}, std::byte{0xb5},
                                                   std::byte{0x2f}, std::byte{0xfd}};
  start_bytes_ = stored_->read(start_);
  const CompressedInput input{
      .stream = *stored_, .start = std::span(start_).first(start_bytes_), .name = name_};
  if (start_bytes_ >= 2 && start_[0] == std::byte{0x1f} && start_[1] == std::byte{0x8b}) {
    compression_ = Compression::gzip;
    decompressed_ = open_gzip(input);
  } else if (start_ == zstd_magic) {
    compression_ = Compression::zstd;
    decompressed_ = open_zstd(input);
  }
  for (const Compression expected : {Compression::gzip, Compression::zstd}) {
    if (compression_ == Compression::none && ends_like(name_, expected)) {
      throw base::IoError(fmt::format(
          "{}: begins with {} bytes that are not the magic number of {}; the name says that it is "
          "compressed",
          name_, start_bytes_, name_of(expected)));
    }
  }
}

ShardStream::~ShardStream() = default;

size_t ShardStream::read(std::span<std::byte> out) {
  size_t done = 0;
  if (decompressed_) {
    done = decompressed_->read(out);
  } else {
    done = std::min(out.size(), start_bytes_ - start_used_);
    std::copy_n(start_.begin() + static_cast<ptrdiff_t>(start_used_), done, out.begin());
    start_used_ += done;
    done += stored_->read(out.subspan(done));
  }
  offset_ += static_cast<int64_t>(done);
  return done;
}

bool ShardStream::read_all(std::span<std::byte> out) {
  size_t done = 0;
  while (done < out.size()) {
    const size_t count = read(out.subspan(done));
    if (count == 0) return false;
    done += count;
  }
  return true;
}

void ShardStream::drain() {
  std::array<std::byte, 16384> scratch;
  while (read(scratch) > 0) {
  }
}

}  // namespace trireme::data
