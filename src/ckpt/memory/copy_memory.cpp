// SPDX-License-Identifier: Apache-2.0
#include "ckpt/memory/copy_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <limits>
#include <new>
#include <thread>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/shape.h"
#include "base/system/threads.h"
#include "ckpt/disk/disk.h"
#include "ckpt/generation/format.h"

namespace trireme::ckpt {
namespace {

constexpr uint64_t magic = 0x59504f43454d4952;  // "RIMECOPY" in memory
constexpr int64_t version = 2;

// Ranks that share a host hash at the same time, so a rank takes few threads.
constexpr int64_t max_hashing_threads = 4, hashed_piece_bytes = int64_t{8} << 20;

std::string error_text() { return std::strerror(errno); }

base::IoError not_open(int descriptor) {
  return base::IoError(
      fmt::format("the memory for copies of the state: descriptor {} is not open: {}", descriptor,
                  error_text()));
}

std::byte* map_or_throw(int descriptor, int64_t bytes, int64_t offset = 0) {
  void* const found = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                             MAP_SHARED, descriptor, offset);
  if (found == MAP_FAILED) {
    throw base::IoError(
        fmt::format("the memory for copies of the state (descriptor {}) cannot be mapped: {}",
                    descriptor, error_text()));
  }
  return static_cast<std::byte*>(found);
}

int64_t buffer_bytes(const CopyShape& shape) {
  return page_bytes + base::round_up(shape.bytes, page_bytes);
}

}  // namespace

// The first page of a buffer. `own` is the hash of all bytes before it. `held` is one word, which
// mark_held() sets to a part of that hash: a process may be killed before or after, not within.
struct CopyMemory::Header {
  uint64_t magic;
  int64_t version;
  int32_t rank, buffers;
  int64_t bytes;
  Hash layout, content;
  CopyLabel label;
  Hash own;
  uint64_t held;

  bool is_held() const { return held == own.low; }
  Hash hash() const {
    return hash_of({reinterpret_cast<const std::byte*>(this), offsetof(Header, own)});
  }
};

int64_t CopyShape::memory_bytes() const { return buffers * buffer_bytes(*this); }

CopyMemory::CopyMemory(int descriptor, const CopyShape& shape)
    : memory_(nullptr), descriptor_(descriptor), shape_(shape) {
  static_assert(std::has_unique_object_representations_v<Header> && sizeof(Header) <= page_bytes);
  TRIREME_CHECK(shape.buffers >= min_copy_buffers && shape.buffers <= max_copy_buffers,
                "{} buffers", shape.buffers);
  TRIREME_CHECK(shape.bytes > 0, "{} bytes", shape.bytes);
  const int64_t bytes = shape.memory_bytes();
  if (::ftruncate(descriptor, bytes) != 0) {
    throw base::IoError(
        fmt::format("the memory for copies of the state (descriptor {}) cannot be made {} bytes "
                    "large: {}",
                    descriptor, bytes, error_text()));
  }
  // A page that is missing later would end the process.
  if (const int failed = ::posix_fallocate(descriptor, 0, bytes); failed != 0) {
    release(descriptor);
    throw base::OutOfMemory(fmt::format("{} bytes of memory for copies of the state: {}", bytes,
                                        std::strerror(failed)));
  }
  memory_ = map_or_throw(descriptor, bytes);
  for (int buffer = 0; buffer < shape.buffers; ++buffer) {
    if (!is_intact(*header(buffer))) clear(buffer);
  }
}

std::optional<CopyMemory> CopyMemory::existing(int descriptor, const CopyShape& shape) {
  struct stat found {};
  if (::fstat(descriptor, &found) != 0) throw not_open(descriptor);
  if (found.st_size != shape.memory_bytes()) return std::nullopt;
  return CopyMemory(map_or_throw(descriptor, shape.memory_bytes()), descriptor, shape);
}

CopyMemory CopyMemory::part_of(int descriptor, int64_t offset, const CopyShape& shape) {
  TRIREME_CHECK(offset % page_bytes == 0, "offset {}", offset);
  struct stat found {};
  if (::fstat(descriptor, &found) != 0) throw not_open(descriptor);
  TRIREME_CHECK(found.st_size >= offset + shape.memory_bytes(), "{} bytes from {} on of {}",
                shape.memory_bytes(), offset, found.st_size);
  return {map_or_throw(descriptor, shape.memory_bytes(), offset), descriptor, shape};
}

void CopyMemory::release(int descriptor) {
  if (::ftruncate(descriptor, 0) == 0) return;
  throw base::IoError(fmt::format("descriptor {}: the memory of copies cannot be given back: {}",
                                  descriptor, error_text()));
}

CopyMemory::~CopyMemory() {
  if (memory_ != nullptr) ::munmap(memory_, static_cast<size_t>(shape_.memory_bytes()));
}

CopyMemory::CopyMemory(CopyMemory&& other) noexcept
    : memory_(std::exchange(other.memory_, nullptr)),
      descriptor_(other.descriptor_),
      shape_(other.shape_) {}

int64_t CopyMemory::reserved_bytes(int descriptor) {
  struct stat found {};
  if (::fstat(descriptor, &found) != 0) throw not_open(descriptor);
  constexpr int64_t block_bytes = 512;  // of st_blocks, by its definition
  return found.st_blocks * block_bytes;
}

CopyMemory::Header* CopyMemory::header(int buffer) const {
  TRIREME_CHECK(buffer >= 0 && buffer < shape_.buffers, "buffer {} of {}", buffer, shape_.buffers);
  return reinterpret_cast<Header*>(memory_ + buffer * buffer_bytes(shape_));
}

bool CopyMemory::is_intact(const Header& h) const {
  return h.magic == magic && h.version == version && h.own == h.hash() && h.rank == shape_.rank &&
         h.buffers == shape_.buffers && h.bytes == shape_.bytes && h.layout == shape_.layout;
}

Hash CopyMemory::hash_of_content(int buffer) const {
  const std::span<const std::byte> all = content(buffer);
  const int64_t pieces = (std::ssize(all) + hashed_piece_bytes - 1) / hashed_piece_bytes;
  std::vector<base::ContentSum> sums(static_cast<size_t>(pieces));
  const auto add_piece = [&](int64_t i) {
    const auto begin = static_cast<size_t>(i * hashed_piece_bytes);
    sums[static_cast<size_t>(i)].add(
        all.subspan(begin, std::min(all.size() - begin, static_cast<size_t>(hashed_piece_bytes))),
        i * hashed_piece_bytes);
  };
  // A piece takes longer than the start of a thread.
  const auto threads = std::min<int64_t>(
      {max_hashing_threads, pieces, static_cast<int64_t>(std::thread::hardware_concurrency())});
  base::ThreadPool(static_cast<int>(std::max<int64_t>(1, threads))).for_each(pieces, add_piece);
  base::ContentSum sum;
  for (const base::ContentSum& of_piece : sums) sum.add(of_piece);
  return content_hash(sum);
}

std::vector<FoundCopy> CopyMemory::copies() const {
  std::vector<FoundCopy> found;
  for (int buffer = 0; buffer < shape_.buffers; ++buffer) {
    const Header& h = *header(buffer);
    if (!is_intact(h)) continue;
    found.push_back({.buffer = buffer, .is_held = h.is_held(), .label = h.label});
  }
  return newest_first(std::move(found));
}

std::vector<FoundCopy> CopyMemory::newest_first(std::vector<FoundCopy> copies) {
  std::ranges::stable_sort(copies, std::ranges::greater{},
                           [](const FoundCopy& copy) { return copy.label.step; });
  return copies;
}

template <typename Each>
void CopyMemory::for_each_in(int descriptor, const Each& each) {
  struct stat file {};
  if (::fstat(descriptor, &file) != 0) throw not_open(descriptor);
  for (int buffers = min_copy_buffers; buffers <= max_copy_buffers; ++buffers) {
    const int64_t apart = file.st_size / buffers;
    for (int buffer = 0; buffer < buffers; ++buffer) {
      Header h{};
      if (::pread(descriptor, &h, sizeof h, buffer * apart) != sizeof h) continue;
      if (h.magic != magic || h.version != version || h.own != h.hash()) continue;
      const CopyShape shape{
          .layout = h.layout, .bytes = h.bytes, .rank = h.rank, .buffers = h.buffers};
      if (shape.buffers != buffers || shape.memory_bytes() != file.st_size) continue;
      each(shape, FoundCopy{.buffer = buffer, .is_held = h.is_held(), .label = h.label});
    }
  }
}

std::vector<FoundCopy> CopyMemory::copies_in(int descriptor) {
  std::vector<FoundCopy> found;
  for_each_in(descriptor,
              [&found](const CopyShape&, const FoundCopy& copy) { found.push_back(copy); });
  return newest_first(std::move(found));
}

std::optional<CopyShape> CopyMemory::shape_in(int descriptor) {
  std::optional<CopyShape> found;
  for_each_in(descriptor, [&found](const CopyShape& shape, const FoundCopy&) { found = shape; });
  return found;
}

bool CopyMemory::verify(int buffer) const {
  const Header& h = *header(buffer);
  return is_intact(h) && hash_of_content(buffer) == h.content;
}

std::span<const std::byte> CopyMemory::content(int buffer) const {
  return {reinterpret_cast<const std::byte*>(header(buffer)) + page_bytes,
          static_cast<size_t>(shape_.bytes)};
}

void CopyMemory::clear(int buffer) {
  *header(buffer) = {};
  // A process that is killed later must not leave new content behind an old header.
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

std::span<std::byte> CopyMemory::begin(int buffer) {
  clear(buffer);
  return room(buffer);
}

std::span<std::byte> CopyMemory::room(int buffer) {
  return {reinterpret_cast<std::byte*>(header(buffer)) + page_bytes,
          static_cast<size_t>(shape_.bytes)};
}

Hash CopyMemory::hash(int buffer) const {
  const Header& h = *header(buffer);
  TRIREME_CHECK(is_intact(h), "buffer {} has no copy", buffer);
  return h.content;
}

Hash CopyMemory::seal(int buffer, const CopyLabel& label) {
  const Hash content = hash_of_content(buffer);
  seal(buffer, label, content);
  return content;
}

void CopyMemory::seal(int buffer, const CopyLabel& label, const Hash& content) {
  Header h{.magic = magic,
           .version = version,
           .rank = shape_.rank,
           .buffers = shape_.buffers,
           .bytes = shape_.bytes,
           .layout = shape_.layout,
           .content = content,
           .label = label,
           .own = {},
           .held = 0};
  h.own = h.hash();
  h.held = ~h.own.low;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  *header(buffer) = h;
}

void CopyMemory::mark_held(int buffer) {
  Header& h = *header(buffer);
  TRIREME_CHECK(is_intact(h), "buffer {} has no copy", buffer);
  std::atomic_ref(h.held).store(h.own.low);
}

}  // namespace trireme::ckpt
