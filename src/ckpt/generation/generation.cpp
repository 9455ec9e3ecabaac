// SPDX-License-Identifier: Apache-2.0
// Opens and verifies checkpoints; read_plan.cpp reads them.
#include "ckpt/generation/generation.h"

#include <fmt/core.h>

#include <algorithm>
#include <mutex>

#include "base/check.h"
#include "base/error.h"
#include "ckpt/disk/aligned.h"
#include "ckpt/generation/folder.h"

namespace trireme::ckpt {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& what) {
  throw base::IoError(fmt::format("{}: {}", path.string(), what));
}

Index read_index(Disk& disk, const std::filesystem::path& path, const FileInfo& file) {
  const std::string text = read_text(disk, path, max_index_bytes);
  if (hash_of(text) != file.index_hash) {
    fail(path,
         "its hash is not the one in the manifest: it was damaged, or belongs to another "
         "checkpoint");
  }
  Index index = parse_index(text, path.string());
  if (index.rank != file.rank || index.data_bytes != file.data_bytes) {
    fail(path, fmt::format("it is of rank {} with {} bytes of data; the manifest says rank {} and "
                           "{}",
                           index.rank, index.data_bytes, file.rank, file.data_bytes));
  }
  return index;
}

// Throws unless the pieces cover the tensor.
void expect_whole(const TensorInfo& tensor, const std::vector<std::vector<spec::Piece>>& pieces,
                  const std::filesystem::path& folder) {
  const spec::Piece whole{std::vector<int64_t>(tensor.shape.size()), tensor.shape, 0};
  try {
    spec::reshard(pieces, {whole});
  } catch (const base::ConfigError& error) {
    fail(folder, fmt::format("{}: {}", tensor.name, error.what()));
  }
}

// Returns the first byte from `begin` on that lies in no box and is not zero, or nothing. `boxes`
// are ranges [begin, end) of the file in ascending order.
std::optional<int64_t> dirty_padding(std::span<const std::byte> bytes, int64_t begin,
                                     const std::vector<spec::Range>& boxes) {
  int64_t at = begin;
  const int64_t end = begin + std::ssize(bytes);
  auto box = std::ranges::upper_bound(boxes, begin, {}, &spec::Range::end);
  while (at < end) {
    const int64_t until = box == boxes.end() ? end : std::min(end, std::max(at, box->begin));
    for (; at < until; ++at) {
      if (bytes[static_cast<size_t>(at - begin)] != std::byte{0}) return at;
    }
    if (box != boxes.end()) at = std::max(at, (box++)->end);
  }
  return {};
}

}  // namespace

Generation Generation::open(Disk& disk, const std::filesystem::path& folder,
                            const IoOptions& options) {
  Generation generation;
  generation.disk_ = &disk;
  generation.folder_ = folder;
  generation.manifest_ = read_manifest(disk, folder);
  for (const TensorInfo& tensor : generation.manifest_.tensors) {
    generation.saved_[tensor.name].info = tensor;
  }
  const std::vector<FileInfo>& files = generation.manifest_.files;
  std::vector<Index> indexes(files.size());
  for_each_in_flight(options.queue_depth, std::ssize(files), [&](int, int64_t number) {
    const FileInfo& file = files[static_cast<size_t>(number)];
    expect_files(disk, folder, file);
    indexes[static_cast<size_t>(number)] = read_index(disk, folder / index_name(file.rank), file);
  });
  for (size_t i = 0; i < files.size(); ++i) generation.add(files[i], indexes[i]);
  for (const auto& [name, saved] : generation.saved_) {
    expect_whole(saved.info, saved.pieces, folder);
  }
  return generation;
}

void Generation::add(const FileInfo& file, const Index& index) {
  const int number = static_cast<int>(files_.size());
  files_.push_back({folder_ / data_name(file.rank), index.data_bytes, index.chunks});
  for (const SavedTensor& tensor : index.tensors) {
    const auto found = saved_.find(tensor.tensor.name);
    if (found == saved_.end() || found->second.info != tensor.tensor) {
      fail(folder_ / index_name(file.rank),
           fmt::format("{} is not in the manifest, or there with another type or shape",
                       tensor.tensor.name));
    }
    Saved& saved = found->second;
    saved.files.push_back(number);
    std::vector<spec::Piece>& pieces = saved.pieces.emplace_back();
    for (const SavedBox& box : tensor.boxes) {
      pieces.push_back({box.lo, box.hi, box.offset / base::size_of(tensor.tensor.dtype)});
    }
  }
}

int64_t Generation::data_bytes() const {
  int64_t bytes = 0;
  for (const DataFile& file : files_) bytes += file.bytes;
  return bytes;
}

std::span<std::byte> Generation::read_chunk(DiskFile& from, int file, int64_t chunk,
                                            std::span<std::byte> buffer) const {
  const DataFile& data = files_[static_cast<size_t>(file)];
  const int64_t begin = chunk * chunk_bytes;
  const auto bytes = buffer.first(static_cast<size_t>(std::min(chunk_bytes, data.bytes - begin)));
  from.read_at(begin, bytes);
  if (hash_of(bytes) != data.chunks[static_cast<size_t>(chunk)]) {
    fail(data.path, fmt::format("bytes {} to {} do not have the hash that was taken when they were "
                                "saved: the file was damaged",
                                begin, begin + std::ssize(bytes)));
  }
  return bytes;
}

std::vector<std::string> Generation::damage(
    const IoOptions& options, const std::function<void(int64_t bytes)>& progress) const {
  struct Chunk {
    int file;
    int64_t chunk;
  };
  std::vector<Chunk> chunks;
  std::vector<std::vector<spec::Range>> boxes(files_.size());
  for (const auto& [name, saved] : saved_) {
    for (size_t i = 0; i < saved.files.size(); ++i) {
      for (const spec::Piece& piece : saved.pieces[i]) {
        const int64_t bytes = base::size_of(saved.info.dtype);
        const int64_t begin = piece.local * bytes;
        boxes[static_cast<size_t>(saved.files[i])].push_back(
            {begin, begin + elements_of({piece.lo, piece.hi, 0}) * bytes});
      }
    }
  }
  for (size_t file = 0; file < files_.size(); ++file) {
    std::ranges::sort(boxes[file], {}, &spec::Range::begin);
    for (int64_t chunk = 0; chunk < std::ssize(files_[file].chunks); ++chunk) {
      chunks.push_back({static_cast<int>(file), chunk});
    }
  }
  std::vector<AlignedBytes> buffers(static_cast<size_t>(options.queue_depth));
  std::vector<std::string> lines(chunks.size());
  std::mutex mutex;  // calls of `progress`
  for_each_in_flight(options.queue_depth, std::ssize(chunks), [&](int worker, int64_t index) {
    const auto [file, chunk] = chunks[static_cast<size_t>(index)];
    const DataFile& data = files_[static_cast<size_t>(file)];
    try {
      const auto bytes = read_chunk(*disk_->open(data.path), file, chunk,
                                    buffers[static_cast<size_t>(worker)].of(chunk_bytes));
      const auto dirty =
          dirty_padding(bytes, chunk * chunk_bytes, boxes[static_cast<size_t>(file)]);
      if (dirty) fail(data.path, fmt::format("byte {} is padding and not zero", *dirty));
    } catch (const base::Error& error) {
      lines[static_cast<size_t>(index)] = error.what();
    }
    if (!progress) return;
    const std::scoped_lock lock(mutex);
    progress(std::min(chunk_bytes, data.bytes - chunk * chunk_bytes));
  });
  std::erase(lines, "");
  return lines;
}

}  // namespace trireme::ckpt
