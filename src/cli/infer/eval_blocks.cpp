// SPDX-License-Identifier: Apache-2.0
#include "cli/infer/eval_blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>

#include "base/text/json.h"
#include "obs/terminal/table.h"

namespace trireme::cli {

LossByBlock loss_by_block(const spec::ModelDims& dims, const train::InferenceOptions& options,
                          double all,
                          const std::function<double(const train::InferenceOptions&)>& mean_loss) {
  LossByBlock found{.recipe = options.dtype, .all = all};
  train::InferenceOptions with = options;
  with.dtype = "bf16";
  found.bf16 = mean_loss(with);
  with.dtype = options.dtype;
  for (int block = 0; block < dims.layers; ++block) {
    with.bf16_blocks.clear();
    for (int other = 0; other < dims.layers; ++other) {
      if (other != block) with.bf16_blocks.push_back(other);
    }
    found.blocks.push_back(mean_loss(with));
  }
  return found;
}

std::string to_text(const LossByBlock& of) {
  const std::array<obs::Column, 4> columns = {{{"block in 8 bits"},
                                               {"loss"},
                                               {"above bf16, %"},
                                               {"left if this and earlier rows are in bf16, %"}}};
  std::vector<size_t> order(of.blocks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater{}, [&](size_t block) { return of.blocks[block]; });
  std::vector<std::vector<std::string>> rows;
  double left = of.percent_above_bf16(of.all);
  rows.push_back({"all", fmt::format("{:.6f}", of.all), fmt::format("{:.3f}", left), ""});
  for (const size_t block : order) {
    const double part = of.percent_above_bf16(of.blocks[block]);
    left -= part;
    rows.push_back({fmt::format("{}", block), fmt::format("{:.6f}", of.blocks[block]),
                    fmt::format("{:.3f}", part), fmt::format("{:.3f}", left)});
  }
  rows.push_back({"none (bf16)", fmt::format("{:.6f}", of.bf16), "0.000", ""});
  return "\n" + obs::table_text(columns, rows) +
         "What is left assumes that the parts of blocks add up; measure a choice by training with "
         "it.\n";
}

base::Json to_json(const LossByBlock& of) {
  base::Json blocks = base::Json::array();
  for (size_t block = 0; block < of.blocks.size(); ++block) {
    blocks.push_back({{"block", block},
                      {"loss", of.blocks[block]},
                      {"percent_above_bf16", of.percent_above_bf16(of.blocks[block])}});
  }
  return {{"recipe", of.recipe},
          {"loss_bf16", of.bf16},
          {"percent_above_bf16", of.percent_above_bf16(of.all)},
          {"blocks", blocks}};
}

}  // namespace trireme::cli
