// SPDX-License-Identifier: Apache-2.0
// Measured choices of matrix-product algorithms, cached in a file so that the next run need not
// measure. A file belongs to one GPU model, one version of the library and one rule of admission,
// which its name contains. Its choices are hints: they are checked with the library before use.
#pragma once

#include <cublasLt.h>

#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace trireme::kernels::cuda {

struct GemmChoice {
  cublasLtMatmulAlgo_t algo = {};
  double microseconds = 0;
  // Benchmarked and rejected: slower than the alternative, or its result was wrong.
  bool is_rejected = false;
};

class GemmChoices {
 public:
  // Empty: choices are kept in memory only.
  explicit GemmChoices(std::filesystem::path file) : file_(std::move(file)) {}

  const std::filesystem::path& file() const { return file_; }

  // The file is read at the first call; one that is unreadable or corrupt is ignored with a
  // warning and replaced by the next keep().
  std::optional<GemmChoice> find(const std::string& product);
  // Rewrites the file. Warns once if it cannot be written.
  void keep(const std::string& product, const GemmChoice& choice);

 private:
  void load();
  void save();

  std::filesystem::path file_;
  std::map<std::string, GemmChoice> choices_;
  bool is_loaded_ = false;
  bool is_writable_ = true;
};

}  // namespace trireme::kernels::cuda
