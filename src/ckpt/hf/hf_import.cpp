// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "ckpt/hf/hf_folder.h"
#include "ckpt/hf/hf_weights.h"

namespace trireme::ckpt {
namespace {

// Counts values that are not finite, over all parameters, and remembers the first.
class NotFinite {
 public:
  explicit NotFinite(std::filesystem::path where) : where_(std::move(where)) {}

  bool any() const { return count_ > 0; }
  // `values` are those of the parameter from row `first` on.
  void look_at(const HfParam& param, int64_t first, std::span<const float> values) {
    bool is_new = true;
    for (size_t i = 0; i < values.size(); ++i) {
      if (std::isfinite(values[i])) continue;
      const int64_t columns = param.columns(), at = static_cast<int64_t>(i);
      if (count_++ == 0) first_ = text(param, first + at / columns, at % columns, values[i]);
      if (is_new && last_ != param.name) ++parameters_;
      is_new = false;
      last_ = param.name;
    }
  }
  void throw_if_any() const {
    if (count_ == 0) return;
    throw base::IoError(
        fmt::format("{}: {} value{} of {} parameter{} {} not finite, the first is {}: weights of a "
                    "run that has diverged, or a damaged file; nothing can be trained from them",
                    where_.string(), count_, count_ == 1 ? "" : "s", parameters_,
                    parameters_ == 1 ? "" : "s", count_ == 1 ? "is" : "are", first_));
  }

 private:
  // Formats the position in the file's terms: its tensor may be a part of the parameter, or
  // transposed.
  static std::string text(const HfParam& param, int64_t row, int64_t column, float value) {
    const auto tensor = std::find_if(
        param.tensors.begin(), param.tensors.end(),
        [row](const HfTensor& t) { return row >= t.first_row && row < t.first_row + t.rows; });
    TRIREME_CHECK(tensor != param.tensors.end(), "{}: no tensor has row {}", param.name, row);
    row -= tensor->first_row;
    const std::string place = param.shape.size() == 1 ? fmt::format("{}", row)
                              : tensor->is_transposed ? fmt::format("{}, {}", column, row)
                                                      : fmt::format("{}, {}", row, column);
    return fmt::format("{} at [{}] of tensor '{}'", value, place, tensor->name);
  }

  std::filesystem::path where_;
  int64_t count_ = 0, parameters_ = 0;
  std::string first_, last_;
};

}  // namespace

void expect_hf(const std::filesystem::path& dir_or_file, const spec::ModelDims& dims) {
  (void)HfFolder(dir_or_file, dims);
}

void import_hf(const std::filesystem::path& dir_or_file, const spec::ModelDims& dims,
               const WriteParam& write) {
  std::map<std::string, int64_t> elements;
  for (const HfParam& param : hf_params(dims)) elements[param.name] = param.elements();
  std::vector<float> values;
  import_hf_parts(dir_or_file, dims,
                  [&](const std::string& name, int64_t element, std::span<const float> part) {
                    values.resize(static_cast<size_t>(elements.at(name)));
                    std::copy(part.begin(), part.end(), values.begin() + element);
                    if (element + std::ssize(part) == std::ssize(values)) write(name, values);
                  });
}

void import_hf_parts(const std::filesystem::path& dir_or_file, const spec::ModelDims& dims,
                     const WritePart& write) {
  constexpr int64_t window_elements = int64_t{8} << 20;
  const HfFolder folder(dir_or_file, dims);
  NotFinite not_finite(dir_or_file);
  std::vector<float> values;
  for (const HfParam& param : folder.params()) {
    const int64_t columns = param.columns();
    const int64_t rows_at_once = std::max<int64_t>(1, window_elements / columns);
    for (int64_t first = 0, last = 0; first < param.rows(); first = last) {
      last = std::min(first + rows_at_once, param.matrix_end(first));
      values.resize(static_cast<size_t>((last - first) * columns));
      folder.read(param.name, param.box({first, last}), values);
      not_finite.look_at(param, first, values);
      // After the first bad value, later ones are only counted.
      if (!not_finite.any()) write(param.name, first * columns, values);
    }
  }
  not_finite.throw_if_any();
}

}  // namespace trireme::ckpt
