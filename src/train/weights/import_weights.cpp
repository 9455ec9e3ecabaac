// SPDX-License-Identifier: Apache-2.0
#include "train/weights/import_weights.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>

#include "base/check.h"
#include "base/error.h"
#include "base/text/json.h"
#include "ckpt/disk/aligned.h"
#include "ckpt/generation/folder.h"
#include "ckpt/generation/save.h"
#include "ckpt/generation/tokenizer_copy.h"
#include "ckpt/hf/hf_names.h"
#include "ckpt/hf/hf_weights.h"
#include "config/files/model_file.h"
#include "train/checkpointing/saved_state.h"

namespace trireme::train {
namespace {

// Writes boxes in the order of the file, with zeros between them.
class FrontToBack {
 public:
  explicit FrontToBack(ckpt::DataWriter& writer) : writer_(writer) {}

  void put(int64_t offset, std::span<const std::byte> bytes) {
    fill(offset);
    while (!bytes.empty()) {
      const auto room = window();
      const size_t part = std::min(room.size(), bytes.size());
      std::memcpy(room.data(), bytes.data(), part);
      advance(part);
      bytes = bytes.subspan(part);
    }
  }
  // Writes zeros up to `end`.
  void fill(int64_t end) {
    TRIREME_CHECK(end >= at_, "byte {} is before the current position {}", end, at_);
    while (at_ < end) {
      const auto room = window();
      const size_t part = std::min(room.size(), static_cast<size_t>(end - at_));
      std::memset(room.data(), 0, part);
      advance(part);
    }
  }
  void flush() {
    writer_.append(memory_.of(window_bytes).first(filled_));
    filled_ = 0;
  }

 private:
  static constexpr int64_t window_bytes = 8 * ckpt::chunk_bytes;

  std::span<std::byte> window() { return memory_.of(window_bytes).subspan(filled_); }
  void advance(size_t bytes) {
    at_ += static_cast<int64_t>(bytes);
    filled_ += bytes;
    if (filled_ == static_cast<size_t>(window_bytes)) flush();
  }

  ckpt::DataWriter& writer_;
  ckpt::AlignedBytes memory_;
  size_t filled_ = 0;
  int64_t at_ = 0;
};

std::vector<ckpt::TensorPieces> pieces_of(const spec::ModelDims& dims) {
  std::vector<ckpt::TensorPieces> all;
  for (const ckpt::HfParam& param : ckpt::hf_params(dims)) {
    for (const spec::StateTensor& tensor :
         spec::optimizer_state({}, spec::recipe_of(spec::Precision::fp32))) {
      all.push_back({{spec::saved_name(tensor, param.name), base::DType::f32, param.shape},
                     {{std::vector<int64_t>(param.shape.size()), param.shape, 0}}});
    }
  }
  return all;
}

// Returns the tokenizer's files beside the weights; empty: there are none.
std::vector<ckpt::NamedBytes> tokenizer_of(const std::filesystem::path& weights) {
  const std::filesystem::path folder =
      std::filesystem::is_directory(weights) ? weights : weights.parent_path();
  std::vector<ckpt::NamedBytes> files;
  for (const char* name : ckpt::tokenizer_files) {
    std::ifstream file(folder / name, std::ios::binary);
    if (!file.is_open()) continue;
    files.push_back({name, std::string{std::istreambuf_iterator<char>(file), {}}});
    if (file.bad()) {
      throw base::IoError(fmt::format("{}: cannot be read", (folder / name).string()));
    }
  }
  return files;
}

}  // namespace

std::filesystem::path import_weights(ckpt::Disk& disk, const std::filesystem::path& weights,
                                     const spec::ModelDims& dims, const std::filesystem::path& root,
                                     const std::function<void(int64_t bytes)>& progress) {
  return import_parts(
      disk,
      {.weights = weights,
       .dims = dims,
       .check = [&] { ckpt::expect_hf(weights, dims); },
       .read = [&](const ckpt::WritePart& write) { ckpt::import_hf_parts(weights, dims, write); }},
      root, progress);
}

std::filesystem::path import_parts(ckpt::Disk& disk, const PartsSource& source,
                                   const std::filesystem::path& root,
                                   const std::function<void(int64_t bytes)>& progress) {
  const auto& [weights, dims, check, read] = source;
  if (const auto steps = ckpt::committed_steps(disk, root); !steps.empty()) {
    throw base::IoError(fmt::format(
        "{}: already contains checkpoints, the newest of step {}; imported weights start a new "
        "run: give another folder",
        root.string(), steps.front()));
  }
  // Checked before disk space is allocated for a model that these weights may not fit.
  check();
  const std::vector<ckpt::TensorPieces> pieces = pieces_of(dims);
  const ckpt::FileLayout layout = ckpt::plan_file(pieces);
  ckpt::Manifest manifest;
  manifest.state = {{"step", 0},
                    {"imported", weights.string()},
                    {"model", config::to_json(dims)},
                    {"clipping", to_json(kernels::StepState{})}};
  for (const ckpt::TensorPieces& part : pieces) manifest.tensors.push_back(part.tensor);
  const ckpt::Draft draft = ckpt::begin_generation(disk, root, 0);
  try {
    ckpt::DataWriter writer(disk, draft.folder, 0, layout);
    FrontToBack file(writer);
    std::map<std::string_view, int64_t> offset_of;
    for (const ckpt::SavedTensor& saved : layout.tensors) {
      offset_of[saved.tensor.name] = saved.boxes.front().offset;
    }
    read([&](const std::string& name, int64_t element, std::span<const float> values) {
      const int64_t offset = offset_of.at(saved_weight_name(name));
      const int64_t at = offset + element * int64_t{sizeof(float)};
      file.put(at, std::as_bytes(values));
      if (progress) progress(at + std::ssize(std::as_bytes(values)));
    });
    file.fill(layout.bytes);
    file.flush();
    manifest.files = {writer.finish()};
    ckpt::write_tokenizer(disk, draft.folder, tokenizer_of(weights));
    return ckpt::commit(disk, draft, manifest);
  } catch (...) {
    ckpt::abandon(disk, draft);
    throw;
  }
}

}  // namespace trireme::train
