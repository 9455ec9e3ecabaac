// SPDX-License-Identifier: Apache-2.0
#include "ckpt/generation/file_sink.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "ckpt/disk/parallel.h"

namespace trireme::ckpt {
namespace {

int64_t chunks_of(const FileLayout& layout) {
  return (layout.bytes + chunk_bytes - 1) / chunk_bytes;
}

// Returns the part of `bytes`, those of a file, that belongs to a chunk.
template <typename Byte>
std::span<Byte> chunk_of(std::span<Byte> bytes, int64_t chunk) {
  const int64_t begin = chunk * chunk_bytes;
  return bytes.subspan(static_cast<size_t>(begin),
                       static_cast<size_t>(std::min(chunk_bytes, std::ssize(bytes) - begin)));
}

// Reads back with as many threads as have work.
int64_t readers_of(int64_t chunks, const IoOptions& io) {
  return io.reread ? std::min<int64_t>(io.queue_depth, chunks) : 0;
}

}  // namespace

int64_t writer_bytes(const FileLayout& layout, int rank, const IoOptions& io) {
  const int64_t chunks = chunks_of(layout);
  return Workspace::rounded(chunks * static_cast<int64_t>(sizeof(Hash))) +
         Workspace::rounded(index_text_bytes({rank, layout.bytes, layout.tensors, {}}, chunks)) +
         Workspace::rounded(readers_of(chunks, io) * chunk_bytes);
}

FileInfo file_of(int rank, const Receipt& receipt) {
  return {rank, receipt.bytes, receipt.index_bytes, receipt.hash};
}

Receipt write_index(Disk& disk, const std::filesystem::path& folder, const IndexView& index,
                    std::string_view text) {
  if (std::ssize(text) > max_index_bytes) {
    throw base::IoError(
        fmt::format("the index of rank {} would have {} bytes; at most {} can be "
                    "read: save on more ranks, or larger pieces",
                    index.rank, text.size(), max_index_bytes));
  }
  write_text(disk, folder / index_name(index.rank), text);
  return {.bytes = index.data_bytes, .index_bytes = std::ssize(text), .hash = hash_of(text)};
}

FileSink::FileSink(Parts parts, const IoOptions& io)
    : parts_(std::move(parts)),
      io_(io),
      own_workspace_(parts_.workspace != nullptr
                         ? std::span<std::byte>()
                         : own_memory_.of(writer_bytes(parts_.layout, parts_.rank, io))) {}

int64_t FileSink::chunks() const { return chunks_of(parts_.layout); }

IndexView FileSink::index() const {
  return {parts_.rank, parts_.layout.bytes, parts_.layout.tensors, hashes_};
}

void FileSink::do_begin() {
  Workspace& workspace = parts_.workspace != nullptr ? *parts_.workspace : own_workspace_;
  workspace.clear();
  hashes_ = workspace.take_values<Hash>(chunks());
  text_ = workspace.take_values<char>(index_text_bytes(index(), chunks()));
  reread_ = workspace.take(readers_of(chunks(), io_) * chunk_bytes);
  file_ = parts_.disk.create(parts_.folder / data_name(parts_.rank), parts_.layout.bytes);
}

void FileSink::do_write(std::span<const std::byte> content) {
  TRIREME_CHECK(std::ssize(content) == parts_.layout.bytes, "{} bytes for a file of {}",
                content.size(), parts_.layout.bytes);
  for_each_in_flight(io_.queue_depth, chunks(), [&](int, int64_t chunk) {
    const auto bytes = chunk_of(content, chunk);
    hashes_[static_cast<size_t>(chunk)] = hash_of(bytes);
    file_->write_at(chunk * chunk_bytes, bytes);
  });
}

Receipt FileSink::do_seal() {
  file_->sync();
  file_.reset();
  if (io_.reread) compare_with_disk();
  write_index_text(index(), text_);
  return write_index(parts_.disk, parts_.folder, index(), {text_.data(), text_.size()});
}

void FileSink::compare_with_disk() const {
  const auto path = parts_.folder / data_name(parts_.rank);
  const auto file = parts_.disk.open(path);
  for_each_in_flight(io_.queue_depth, chunks(), [&](int worker, int64_t chunk) {
    const int64_t begin = chunk * chunk_bytes;
    const auto buffer =
        reread_.subspan(static_cast<size_t>(worker * chunk_bytes),
                        static_cast<size_t>(std::min(chunk_bytes, parts_.layout.bytes - begin)));
    file->read_at(begin, buffer);
    if (hash_of(buffer) == hashes_[static_cast<size_t>(chunk)]) return;
    throw base::IoError(
        fmt::format("{}: bytes {} to {} are not what was written: the disk or the "
                    "memory of this machine is faulty",
                    path.string(), begin, begin + std::ssize(buffer)));
  });
}

}  // namespace trireme::ckpt
