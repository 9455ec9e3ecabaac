// SPDX-License-Identifier: Apache-2.0
// Weights in Hugging Face form, opened for reading in any order.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "ckpt/hf/hf_names.h"
#include "ckpt/hf/safetensors.h"
#include "spec/model.h"
#include "spec/parallel/shard.h"

namespace trireme::ckpt {

class HfFolder {
 public:
  // Opens a directory, an index (*.index.json) or a single safetensors file of F32, BF16, F16 or
  // F64 tensors. Throws IoError that lists every missing, misshaped and unexpected tensor with its
  // file.
  HfFolder(const std::filesystem::path& dir_or_file, const spec::ModelDims&);

  const std::vector<HfParam>& params() const { return params_; }

  // Fills `values` with the box [lo, hi) of the parameter `name` (our name), row-major, and
  // releases the pages of the files that it read. REQUIRES: the model has the parameter and the
  // box.
  void read(const std::string& our_name, const spec::Piece& box, std::span<float> values) const;

  // A tensor of a file.
  struct Found {
    std::string name;  // as in the file
    const SafetensorsFile* file;
    const SafetensorsView* view;
  };

 private:
  // The same for rows and columns of one matrix.
  void read_rows(const HfParam&, spec::Range rows, spec::Range columns,
                 std::span<float> values) const;

  spec::Family family_;
  std::vector<HfParam> params_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, Found, std::less<>> found_;  // by name without the optional prefix
};

}  // namespace trireme::ckpt
