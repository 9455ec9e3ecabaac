// SPDX-License-Identifier: Apache-2.0
#include "ckpt/memory/kept_copies.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <type_traits>

#include "base/check.h"
#include "base/error.h"
#include "base/shape.h"
#include "ckpt/disk/disk.h"

namespace trireme::ckpt {
namespace {

constexpr uint64_t kept_magic = 0x5450454b454d4952;  // "RIMEKEPT" in memory
constexpr int64_t kept_version = 1;

struct Entry {
  Hash layout;
  int64_t bytes;
  int32_t rank, buffers;
};
// The directory: this, and an entry for each rank.
struct Head {
  uint64_t magic;
  int64_t version, count;
  Hash entries;
};
static_assert(std::has_unique_object_representations_v<Entry> &&
              std::has_unique_object_representations_v<Head>);

int64_t directory_bytes(size_t count) {
  return base::round_up(static_cast<int64_t>(sizeof(Head) + count * sizeof(Entry)), page_bytes);
}

std::vector<Entry> entries_of(std::span<const CopyShape> shapes) {
  std::vector<Entry> entries;
  for (const CopyShape& shape : shapes) {
    entries.push_back({.layout = shape.layout,
                       .bytes = shape.bytes,
                       .rank = shape.rank,
                       .buffers = shape.buffers});
  }
  return entries;
}

base::IoError failure(int descriptor, const char* what) {
  return base::IoError(fmt::format("the memory for copies of other ranks (descriptor {}) {}: {}",
                                   descriptor, what, std::strerror(errno)));
}

int64_t size_of(int descriptor) {
  struct stat found {};
  if (::fstat(descriptor, &found) != 0) throw failure(descriptor, "is not open");
  return found.st_size;
}

// Returns the shapes in the directory; none: it is not intact.
std::optional<std::vector<CopyShape>> shapes_in(int descriptor) {
  const int64_t size = size_of(descriptor);
  Head head{};
  if (::pread(descriptor, &head, sizeof head, 0) != sizeof head) return std::nullopt;
  if (head.magic != kept_magic || head.version != kept_version || head.count < 1)
    return std::nullopt;
  if (head.count > size / static_cast<int64_t>(sizeof(Entry))) return std::nullopt;
  std::vector<Entry> entries(static_cast<size_t>(head.count));
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(entries));
  if (::pread(descriptor, bytes.data(), bytes.size(), sizeof head) != std::ssize(bytes)) {
    return std::nullopt;
  }
  if (hash_of(bytes) != head.entries) return std::nullopt;
  std::vector<CopyShape> shapes;
  for (const Entry& entry : entries) {
    shapes.push_back({.layout = entry.layout,
                      .bytes = entry.bytes,
                      .rank = entry.rank,
                      .buffers = entry.buffers});
  }
  if (KeptCopies::memory_bytes(shapes) > size) return std::nullopt;
  return shapes;
}

void write_or_throw(int descriptor, std::span<const std::byte> bytes, int64_t offset) {
  if (::pwrite(descriptor, bytes.data(), bytes.size(), offset) != std::ssize(bytes)) {
    throw failure(descriptor, "cannot be written");
  }
}

}  // namespace

int64_t KeptCopies::memory_bytes(std::span<const CopyShape> shapes) {
  if (shapes.empty()) return 0;
  int64_t bytes = directory_bytes(shapes.size());
  for (const CopyShape& shape : shapes) bytes += shape.memory_bytes();
  return bytes;
}

KeptCopies::KeptCopies(int descriptor, std::span<const CopyShape> shapes) {
  TRIREME_CHECK(!shapes.empty(), "copies of no rank");
  const auto before = shapes_in(descriptor);
  if (before && std::ranges::equal(*before, shapes)) {
    map(descriptor, shapes);
    return;
  }
  // Until the new directory is complete there is none.
  if (size_of(descriptor) > 0) {
    const Head none{};
    write_or_throw(descriptor, std::as_bytes(std::span(&none, 1)), 0);
  }
  const int64_t bytes = memory_bytes(shapes);
  if (::ftruncate(descriptor, bytes) != 0) throw failure(descriptor, "has no other size");
  reserve(descriptor, bytes);
  map(descriptor, shapes);
  for (CopyMemory& memory : all_) {
    for (int buffer = 0; buffer < memory.shape().buffers; ++buffer) memory.clear(buffer);
  }
  const std::vector<Entry> entries = entries_of(shapes);
  const std::span<const std::byte> list = std::as_bytes(std::span(entries));
  const Head head{.magic = kept_magic,
                  .version = kept_version,
                  .count = std::ssize(entries),
                  .entries = hash_of(list)};
  write_or_throw(descriptor, list, sizeof head);
  write_or_throw(descriptor, std::as_bytes(std::span(&head, 1)), 0);
}

void KeptCopies::reserve(int descriptor, int64_t bytes) {
  const int64_t before = size_of(descriptor);
  // A page that is missing later would end the process.
  const int failed = ::posix_fallocate(descriptor, 0, bytes);
  if (failed == 0) return;
  if (::ftruncate(descriptor, before) != 0) throw failure(descriptor, "has no other size");
  throw base::OutOfMemory(fmt::format("{} bytes of memory for copies of other ranks: {}", bytes,
                                      std::strerror(failed)));
}

std::optional<KeptCopies> KeptCopies::existing(int descriptor) {
  const auto shapes = shapes_in(descriptor);
  if (!shapes) return std::nullopt;
  KeptCopies found;
  found.map(descriptor, *shapes);
  return found;
}

void KeptCopies::map(int descriptor, std::span<const CopyShape> shapes) {
  int64_t offset = directory_bytes(shapes.size());
  for (const CopyShape& shape : shapes) {
    TRIREME_CHECK(of(shape.rank) == nullptr, "rank {} twice", shape.rank);
    all_.push_back(CopyMemory::part_of(descriptor, offset, shape));
    offset += shape.memory_bytes();
  }
}

CopyMemory* KeptCopies::of(int rank) {
  const auto found = std::ranges::find_if(
      all_, [rank](const CopyMemory& memory) { return memory.shape().rank == rank; });
  return found == all_.end() ? nullptr : &*found;
}

}  // namespace trireme::ckpt
