// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/gemm/gemm_choices.h"

#include <fmt/core.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <charconv>
#include <fstream>
#include <iterator>
#include <system_error>

#include "base/error.h"
#include "base/log.h"
#include "base/system/durable_file.h"
#include "base/text/json.h"

namespace trireme::kernels::cuda {
namespace {

constexpr int file_version = 1;
constexpr size_t word_digits = 16;

std::string hex_of(const cublasLtMatmulAlgo_t& algo) {
  std::string text;
  for (const uint64_t word : algo.data) text += fmt::format("{:016x}", word);
  return text;
}

cublasLtMatmulAlgo_t algo_of(const std::string& hex) {
  cublasLtMatmulAlgo_t algo = {};
  if (hex.size() != std::size(algo.data) * word_digits) {
    throw base::IoError(fmt::format("an algorithm of {} hexadecimal digits", hex.size()));
  }
  const char* at = hex.data();
  for (uint64_t& word : algo.data) {
    const auto [end, error] = std::from_chars(at, at + word_digits, word, 16);
    if (error != std::errc() || end != at + word_digits) {
      throw base::IoError("an algorithm that is not hexadecimal");
    }
    at = end;
  }
  return algo;
}

std::map<std::string, GemmChoice> choices_of(const base::Json& file) {
  if (file.at("version").get<int>() != file_version) throw base::IoError("another file version");
  std::map<std::string, GemmChoice> choices;
  for (const auto& [product, entry] : file.at("choices").items()) {
    choices[product] = {.algo = algo_of(entry.at("algo").get<std::string>()),
                        .microseconds = entry.at("microseconds").get<double>(),
                        .is_rejected = entry.at("rejected").get<bool>()};
  }
  return choices;
}

// Atomic: readers see the complete new file or the old one.
void replace(const std::filesystem::path& path, const std::string& text) {
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path());
  std::filesystem::path temporary = path;
  static std::atomic<int> written = 0;  // ranks may be threads of one process
  temporary += fmt::format(".tmp{}.{}", ::getpid(), ++written);
  try {
    base::write_synced(temporary, text);
    std::filesystem::rename(temporary, path);
  } catch (const std::system_error&) {
    std::error_code ignored;
    std::filesystem::remove(temporary, ignored);
    throw;
  }
}

}  // namespace

std::optional<GemmChoice> GemmChoices::find(const std::string& product) {
  if (!is_loaded_) load();
  const auto at = choices_.find(product);
  if (at == choices_.end()) return std::nullopt;
  return at->second;
}

void GemmChoices::keep(const std::string& product, const GemmChoice& choice) {
  if (!is_loaded_) load();
  choices_[product] = choice;
  save();
}

void GemmChoices::load() {
  is_loaded_ = true;
  std::error_code error;
  if (file_.empty() || !std::filesystem::exists(file_, error)) return;
  try {
    std::ifstream in(file_);
    if (!in) throw base::IoError("it cannot be opened");
    choices_ = choices_of(base::Json::parse(in));
  } catch (const std::exception& problem) {  // from JSON, the file, or its contents
    base::log_warning("{}: cannot be read, GEMM algorithms are measured again: {}", file_.string(),
                      problem.what());
    choices_.clear();
  }
}

void GemmChoices::save() {
  if (file_.empty() || !is_writable_) return;
  base::Json choices = base::Json::object();
  for (const auto& [product, choice] : choices_) {
    choices[product] = {{"algo", hex_of(choice.algo)},
                        {"microseconds", choice.microseconds},
                        {"rejected", choice.is_rejected}};
  }
  const base::Json file = {{"version", file_version}, {"choices", choices}};
  try {
    replace(file_, file.dump(1) + "\n");
  } catch (const std::system_error& problem) {
    is_writable_ = false;
    base::log_warning("{}: cannot be written, measured GEMM algorithms are not cached: {}",
                      file_.string(), problem.what());
  }
}

}  // namespace trireme::kernels::cuda
