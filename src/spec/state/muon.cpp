// SPDX-License-Identifier: Apache-2.0
#include "spec/state/muon.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "spec/parallel/data_parallel.h"

namespace trireme::spec {

double iteration_flops(const MuonMatrix& matrix) {
  const auto small = static_cast<double>(std::min(matrix.rows, matrix.cols));
  const auto large = static_cast<double>(std::max(matrix.rows, matrix.cols));
  return small * small * (4 * large + 2 * small);
}

std::vector<MuonMatrix> muon_matrices(std::span<const Param> params, const BucketLayout& layout,
                                      const Sizes& sizes) {
  std::vector<MuonMatrix> all;
  for (const BucketEntry& entry : layout.entries) {
    const Param& param = params[static_cast<size_t>(entry.param)];
    if (param.matrices.empty()) continue;
    const std::vector<int64_t> local = local_shape(param.shard, sizes);
    const int64_t parts = param.shard.shape[0] / local[0];  // of the rows, along tp
    int64_t offset = entry.offset;
    for (const int64_t rows : param.matrices) {
      const MuonMatrix matrix{.rows = rows,
                              .cols = param.shard.shape[1],
                              .local_rows = rows / parts,
                              .local_cols = local[1],
                              .offset = offset};
      offset += matrix.local_elements();
      all.push_back(matrix);
    }
    TRIREME_CHECK(offset == entry.offset + entry.elements, "the matrices of '{}' do not fill it",
                  param.shard.name);
  }
  return all;
}

ScratchSet muon_scratch(std::span<const MuonMatrix> matrices, const BucketLayout& layout) {
  ScratchSet set{.name = "muon"};
  if (matrices.empty()) return set;
  int64_t elements = 0, square = 0;
  for (const MuonMatrix& matrix : matrices) {
    const int64_t side = std::min(matrix.rows, matrix.cols);
    elements = std::max(elements, matrix.elements());
    square = std::max(square, side * side);
  }
  for (const int64_t size : {layout.elements, elements, elements, square, square}) {
    set.tensors.push_back({{size}, base::DType::f32});
  }
  set.tensors.push_back({{wide_sum_bytes}, base::DType::u8});
  return set;
}

std::vector<int> muon_owners(std::span<const MuonMatrix> matrices, int ranks) {
  std::vector<size_t> order(matrices.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) {
    return iteration_flops(matrices[a]) > iteration_flops(matrices[b]);
  });
  std::vector<double> load(static_cast<size_t>(ranks));
  std::vector<int> owners(matrices.size());
  for (const size_t i : order) {
    const auto least = std::ranges::min_element(load);
    *least += iteration_flops(matrices[i]);
    owners[i] = static_cast<int>(least - load.begin());
  }
  return owners;
}

int64_t muon_traffic(const Plan& plan, const Coord& coord, std::span<const Param> params) {
  if (plan.optimizer.kind != OptimizerKind::muon || plan.inference) return 0;
  const BucketLayout layout = bucket_layout(params, plan.mesh);
  const std::vector<MuonMatrix> matrices = muon_matrices(params, layout, plan.mesh);
  if (matrices.empty()) return 0;
  const int64_t shards = state_shards(plan, ParamView::dense);
  int64_t elements = (shards - 1) * (layout.elements / shards);
  const int ranks = sum_ranks(plan.mesh), place = reduced_place(plan.mesh, coord, ParamView::dense);
  const std::vector<int> owners = muon_owners(matrices, ranks);
  for (size_t i = 0; i < matrices.size(); ++i) {
    if (owners[i] != place) continue;
    elements += (plan.mesh[Axis::tp] - 1 + ranks - 1) * matrices[i].local_elements();
  }
  return elements * base::size_of(base::DType::f32);
}

}  // namespace trireme::spec
