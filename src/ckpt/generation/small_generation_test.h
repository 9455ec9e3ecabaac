// SPDX-License-Identifier: Apache-2.0
// A small checkpoint of two ranks and three tensors, whose content is a function of the step.
#pragma once

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "ckpt/disk/aligned.h"
#include "ckpt/generation/generation.h"
#include "ckpt/generation/save.h"

namespace trireme::ckpt {

struct SmallGeneration {
  int64_t rows = 40;  // of the first two tensors, three columns each; cut between the ranks
  int ranks = 2;

  TensorInfo tensor(int number) const {
    if (number == 2) return {"counts", base::DType::f32, {5}};  // the last rank has it
    return {number == 0 ? "weight/a" : "m/a", base::DType::f32, {rows, 3}};
  }
  std::vector<TensorInfo> tensors() const { return {tensor(0), tensor(1), tensor(2)}; }
  std::vector<TensorPieces> pieces_of(int rank) const {
    const int64_t lo = rows * rank / ranks, hi = rows * (rank + 1) / ranks;
    std::vector<TensorPieces> pieces = {{tensor(0), {{{lo, 0}, {hi, 3}, 0}}},
                                        {tensor(1), {{{lo, 0}, {hi, 3}, 0}}}};
    if (rank == ranks - 1) pieces.push_back({tensor(2), {{{0}, {5}, 0}}});
    return pieces;
  }
};

// Returns all elements by tensor.
inline std::vector<std::vector<float>> content_of_small(int64_t step,
                                                        const SmallGeneration& small) {
  std::vector<std::vector<float>> content;
  for (int number = 0; number < 3; ++number) {
    auto& values = content.emplace_back(
        static_cast<size_t>(bytes_of(small.tensor(number)) / int64_t{sizeof(float)}));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(step * 1000 + number * 100) + static_cast<float>(i) * 0.25F;
    }
  }
  return content;
}

// Returns the data file of a rank.
inline std::span<std::byte> fill_small(int64_t step, const SmallGeneration& small,
                                       const FileLayout& layout, AlignedBytes& memory) {
  const auto content = content_of_small(step, small);
  const auto bytes = memory.of(layout.bytes);
  std::ranges::fill(bytes, std::byte{0});
  for (const SavedTensor& saved : layout.tensors) {
    const size_t number = saved.tensor.name == "counts" ? 2 : saved.tensor.name == "m/a" ? 1 : 0;
    for (const SavedBox& box : saved.boxes) {
      const auto first = static_cast<size_t>(number == 2 ? box.lo[0] : box.lo[0] * 3);
      std::memcpy(bytes.data() + box.offset, content[number].data() + first,
                  static_cast<size_t>(elements_of(box)) * sizeof(float));
    }
  }
  return bytes;
}

inline FileInfo write_small(Disk& disk, const Draft& draft, int rank, const SmallGeneration& small,
                            const IoOptions& options = {.queue_depth = 1}) {
  const FileLayout layout = plan_file(small.pieces_of(rank));
  AlignedBytes memory;
  const auto bytes = fill_small(draft.step, small, layout, memory);
  return write_data(disk, {draft.folder, rank, layout, bytes}, options);
}

inline Manifest manifest_of_small(int64_t step, const SmallGeneration& small) {
  Manifest manifest;
  manifest.step = step;
  manifest.tensors = small.tensors();
  manifest.state = {{"step", step}, {"data", {{"position", 10 * step}}}};
  manifest.plan = {{"mesh", {{"dp", small.ranks}}}};
  return manifest;
}

inline void save_small(Disk& disk, const std::filesystem::path& root, int64_t step,
                       const SmallGeneration& small = {},
                       const IoOptions& options = {.queue_depth = 1}) {
  const Draft draft = begin_generation(disk, root, step);
  Manifest manifest = manifest_of_small(step, small);
  for (int rank = 0; rank < small.ranks; ++rank) {
    manifest.files.push_back(write_small(disk, draft, rank, small, options));
  }
  commit(disk, draft, manifest);
}

inline std::vector<std::vector<float>> loaded_small(const Generation& generation,
                                                    const SmallGeneration& small = {},
                                                    const IoOptions& options = {.queue_depth = 1}) {
  std::vector<std::vector<float>> content;
  std::vector<ReadRequest> requests;
  for (const TensorInfo& tensor : small.tensors()) {
    content.emplace_back(static_cast<size_t>(bytes_of(tensor)) / sizeof(float));
  }
  for (size_t i = 0; i < content.size(); ++i) {
    const TensorInfo tensor = small.tensors()[i];
    requests.push_back({tensor,
                        {{std::vector<int64_t>(tensor.shape.size()), tensor.shape, 0}},
                        std::as_writable_bytes(std::span(content[i]))});
  }
  generation.read(requests, options);
  return content;
}

}  // namespace trireme::ckpt
