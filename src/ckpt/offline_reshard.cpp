// SPDX-License-Identifier: Apache-2.0
#include "ckpt/offline_reshard.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "base/shape.h"
#include "ckpt/disk/aligned.h"
#include "ckpt/generation/tokenizer_copy.h"

namespace trireme::ckpt {
namespace {

// Returns the elements [flat.begin, flat.end) of a box in row-major order as boxes of the tensor;
// local counts from flat.begin.
std::vector<spec::Piece> part_of(const SavedBox& box, spec::Range flat) {
  spec::ShardSpec extent{.name = "box", .shape = {}, .cuts = {}};
  for (size_t dim = 0; dim < box.lo.size(); ++dim) {
    extent.shape.push_back(box.hi[dim] - box.lo[dim]);
  }
  std::vector<spec::Piece> pieces = spec::pieces(extent, {}, {}, flat);
  for (spec::Piece& piece : pieces) {
    for (size_t dim = 0; dim < box.lo.size(); ++dim) {
      piece.lo[dim] += box.lo[dim];
      piece.hi[dim] += box.lo[dim];
    }
  }
  return pieces;
}

// Returns requests that fill the bytes [begin, begin + window.size()) of a data file with this
// layout.
std::vector<ReadRequest> requests_for(const FileLayout& layout, int64_t begin,
                                      std::span<std::byte> window) {
  const int64_t end = begin + std::ssize(window);
  std::vector<ReadRequest> requests;
  for (const SavedTensor& saved : layout.tensors) {
    const int64_t element_bytes = base::size_of(saved.tensor.dtype);
    for (const SavedBox& box : saved.boxes) {
      const int64_t box_end = box.offset + elements_of(box) * element_bytes;
      const int64_t from = std::max(begin, box.offset), until = std::min(end, box_end);
      if (from >= until) continue;
      requests.push_back(
          {saved.tensor,
           part_of(box,
                   {(from - box.offset) / element_bytes, (until - box.offset) / element_bytes}),
           window.subspan(static_cast<size_t>(from - begin), static_cast<size_t>(until - from))});
    }
  }
  return requests;
}

// Throws IoError if a tensor would be lost.
void expect_complete(const Manifest& manifest,
                     const std::map<std::string, std::vector<std::vector<spec::Piece>>>& saved) {
  for (const TensorInfo& tensor : manifest.tensors) {
    const auto found = saved.find(tensor.name);
    const spec::Piece whole{std::vector<int64_t>(tensor.shape.size()), tensor.shape, 0};
    try {
      spec::reshard(found == saved.end() ? std::vector<std::vector<spec::Piece>>{} : found->second,
                    {whole});
    } catch (const base::ConfigError& error) {
      throw base::IoError(
          fmt::format("the new layout does not save all of {}: {}", tensor.name, error.what()));
    }
  }
}

}  // namespace

std::filesystem::path reshard(Disk& disk, const Generation& from, const ReshardTarget& target,
                              const IoOptions& options) {
  TRIREME_CHECK(target.ranks >= 1 && target.window_bytes >= 1, "{} ranks, windows of {} bytes",
                target.ranks, target.window_bytes);
  const int64_t step_bytes = base::round_up(target.window_bytes, chunk_bytes);
  const Draft draft = begin_generation(disk, target.root, from.manifest().step);
  try {
    Manifest manifest = from.manifest();
    manifest.files.clear();
    manifest.writer = {};  // written by no run
    manifest.plan = target.plan;
    std::map<std::string, std::vector<std::vector<spec::Piece>>> saved;
    AlignedBytes memory;
    int64_t written = 0;
    for (int rank = 0; rank < target.ranks; ++rank) {
      const std::vector<TensorPieces> pieces = target.pieces_of(rank);
      for (const TensorPieces& part : pieces) saved[part.tensor.name].push_back(part.pieces);
      const FileLayout layout = plan_file(pieces);
      DataWriter writer(disk, draft.folder, rank, layout);
      for (int64_t begin = 0; begin < layout.bytes; begin += step_bytes) {
        const auto window = memory.of(std::min(step_bytes, layout.bytes - begin));
        std::ranges::fill(window, std::byte{0});
        from.read(requests_for(layout, begin, window), options);
        writer.append(window);
        written += std::ssize(window);
        if (target.progress) target.progress(written);
      }
      manifest.files.push_back(writer.finish());
    }
    expect_complete(manifest, saved);
    write_tokenizer(disk, draft.folder, read_tokenizer(disk, from.folder()));
    return commit(disk, draft, manifest);
  } catch (...) {
    abandon(disk, draft);
    throw;
  }
}

}  // namespace trireme::ckpt
