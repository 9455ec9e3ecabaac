// SPDX-License-Identifier: Apache-2.0
#include "train/weights/weights_source.h"

#include <fmt/format.h>

#include <system_error>
#include <utility>

#include "base/error.h"
#include "config/files/model_file.h"

namespace trireme::train {
namespace {

// A folder without a slash in its name must not be mistaken for the name of a model.
spec::ModelDims dims_in(const std::filesystem::path& weights) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(weights, ignored)) {
    throw base::IoError(
        fmt::format("{}: no such folder; weights are a folder with config.json and safetensors",
                    weights.string()));
  }
  return config::model_from_file((weights / "").string(), {});
}

}  // namespace

HfSource::HfSource(std::filesystem::path folder)
    : folder_(std::move(folder)), dims_(dims_in(folder_)) {}

void HfSource::read(const ckpt::WriteParam& write) { ckpt::import_hf(folder_, dims_, write); }

}  // namespace trireme::train
