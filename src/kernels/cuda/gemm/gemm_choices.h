// SPDX-License-Identifier: Apache-2.0
// Measured choices of matrix-product algorithms, kept in a file so that the next run need not
// measure. A file belongs to one GPU model, one version of the library and one rule of admission
// (its name says which); its choices are advice: they are checked with the library before use.
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
  bool is_rejected = false;  // the product was measured, and another way was better or right
};

class GemmChoices {
 public:
  // Empty: choices live as long as the object.
  explicit GemmChoices(std::filesystem::path file) : file_(std::move(file)) {}

  const std::filesystem::path& file() const { return file_; }

  // The file is read at the first call; one that is unreadable or corrupt is passed over with a
  // warning and replaced by the next keep().
  std::optional<GemmChoice> find(const std::string& product);
  // Rewrites the file. One that cannot be written costs a warning, once.
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
