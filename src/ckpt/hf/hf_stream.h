// SPDX-License-Identifier: Apache-2.0
// Writes parameters into Hugging Face files: split into shards, converted and written window by
// window, so that memory does not grow with the model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "ckpt/hf/hf_names.h"
#include "ckpt/hf/hf_weights.h"

namespace trireme::ckpt {

// One file. The parameters must outlive it.
struct HfShard {
  struct Tensor {
    const HfParam* param;
    const HfTensor* tensor;
  };
  std::string file;
  std::vector<Tensor> tensors;
};

// Returns the shards in the order of the model, each as full as the limit allows.
std::vector<HfShard> cut_into_shards(const std::vector<HfParam>&, base::DType,
                                     int64_t max_shard_bytes);
// Returns model.safetensors.index.json.
std::string index_text(const std::vector<HfShard>&, base::DType);

// Calls each(offset, bytes) with the tensor's bytes as stored in the file, from front to back.
// Memory: two windows of 32 MiB, or two rows of the file's tensor if they are larger.
void for_each_hf_window(
    const HfShard::Tensor&, base::DType, const ReadBox&,
    const std::function<void(int64_t offset, std::span<const std::byte> bytes)>& each);

void write_shards(const std::filesystem::path& folder, const std::vector<HfShard>&, const ReadBox&,
                  base::DType);
// Reads every tensor from its file and from `read`, and throws IoError for the first whose hashes
// differ.
void compare_shards(const std::filesystem::path& folder, const std::vector<HfShard>&,
                    const ReadBox&, base::DType);

// Reads boxes from whole parameters and caches the last one, because the tensors of a fused
// parameter follow each other.
ReadBox boxes_of(std::vector<HfParam>, ReadParam);

}  // namespace trireme::ckpt
