// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>

#include "ckpt/hf_folder.h"
#include "ckpt/hf_weights.h"

namespace trireme::ckpt {

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
  std::vector<float> values;
  for (const HfParam& param : folder.params()) {
    const int64_t columns = param.columns();
    const int64_t rows_at_once = std::max<int64_t>(1, window_elements / columns);
    for (int64_t first = 0; first < param.shape[0]; first += rows_at_once) {
      const int64_t last = std::min(first + rows_at_once, param.shape[0]);
      spec::Piece box{{first}, {last}, 0};
      if (param.shape.size() == 2) {
        box.lo.push_back(0);
        box.hi.push_back(columns);
      }
      values.resize(static_cast<size_t>((last - first) * columns));
      folder.read(param.name, box, values);
      write(param.name, first * columns, values);
    }
  }
}

}  // namespace trireme::ckpt
