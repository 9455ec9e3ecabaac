// SPDX-License-Identifier: Apache-2.0
#include "engine/state/muon_update.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/ops.h"
#include "spec/parallel/data_parallel.h"
#include "spec/parallel/tensor_parallel.h"

namespace trireme::engine {
namespace {

namespace ops = kernels::ops;
using device::Tensor;

Tensor part(const Tensor& flat, int64_t first, const spec::Range& range) {
  return flat.slice_rows(range.begin - first, range.end - range.begin);
}

spec::Range common(const spec::Range& a, const spec::Range& b) {
  const int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

}  // namespace

MuonUpdate::MuonUpdate(const Parts& parts, const optim::MuonOptions& options, float weight_decay)
    : parts_(parts), options_(options), weight_decay_(weight_decay) {
  for (const Bucket& bucket : parts.buckets) {
    OfBucket& of = buckets_.emplace_back();
    of.matrices = spec::muon_matrices(bucket.specs(), bucket.layout(), parts.plan.mesh);
    of.owners = spec::muon_owners(of.matrices, spec::sum_ranks(parts.plan.mesh));
  }
}

void MuonUpdate::update(int index) {
  const OfBucket& of = buckets_[static_cast<size_t>(index)];
  if (of.matrices.empty()) return;
  const Bucket& bucket = parts_.buckets[index];
  DataGroups& groups = parts_.groups;
  device::Stream& compute_stream = groups.compute();
  const device::Arena::Mark mark(parts_.scratch);
  std::vector<Tensor> scratch;
  for (const base::TensorSpec& spec : spec::muon_scratch(of.matrices, bucket.layout()).tensors) {
    scratch.push_back(parts_.scratch.take(spec));
  }
  const Tensor u = scratch[0];
  const optim::NewtonSchulzMemory memory{scratch[1], scratch[2], scratch[3], scratch[4],
                                         scratch[5]};
  const spec::Range& updated = bucket.updated();
  const spec::Range own = common(updated, {0, bucket.layout().matrices});
  if (own.begin < own.end) {
    ops::momentum(compute_stream, {.m = parts_.state.tensor(index, spec::momentum_state),
                                   .u = part(u, 0, own),
                                   .grad = part(bucket.own_grads(), updated.begin, own),
                                   .state = parts_.step_state,
                                   .momentum = options_.momentum,
                                   .nesterov = options_.nesterov});
  }
  if (spec::state_shards(parts_.plan, bucket.layout().view) > 1) {
    groups.after_compute();
    groups.gather_updates(u, part(u, 0, updated));
    groups.before_compute();
  }
  for (size_t i = 0; i < of.matrices.size(); ++i) {
    if (of.owners[i] == groups.place()) compute(of.matrices[i], u, memory);
  }
  if (groups.has_peers(bucket.layout().view)) {
    groups.after_compute();
    for (size_t i = 0; i < of.matrices.size(); ++i) {
      const spec::MuonMatrix& matrix = of.matrices[i];
      groups.broadcast_update(u.slice_rows(matrix.offset, matrix.local_elements()), of.owners[i]);
    }
    groups.before_compute();
  }
  parts_.gate.open(compute_stream, parts_.step_state);
  const optim::ShardWeights& weights = parts_.state.weights(index);
  const std::vector<spec::Range> counted =
      spec::counted_along_tp(bucket.layout(), bucket.reduced(), groups.coord());
  for (const spec::MuonMatrix& matrix : of.matrices) {
    const spec::Range here =
        common(updated, {matrix.offset, matrix.offset + matrix.local_elements()});
    if (here.begin == here.end) continue;
    const optim::ShardWeights moved =
        weights.slice(here.begin - updated.begin, here.end - here.begin);
    kernels::ChangeSquares changes;
    for (const spec::Range& range : counted) {
      const spec::Range part_here = common(range, here);
      if (part_here.begin == part_here.end) continue;
      changes = {parts_.changes, part_here.begin - here.begin, part_here.end - here.begin};
    }
    ops::muon(compute_stream, {.param = moved.param,
                               .master = moved.master,
                               .direction = part(u, 0, here),
                               .state = parts_.step_state,
                               .factor = optim::muon_factor(matrix.rows, matrix.cols),
                               .weight_decay = weight_decay_,
                               .changes = changes});
  }
}

void MuonUpdate::compute(const spec::MuonMatrix& matrix, Tensor u,
                         const optim::NewtonSchulzMemory& memory) {
  device::Stream& stream = parts_.groups.compute();
  const int64_t rows = matrix.rows, cols = matrix.cols;
  const Tensor own = u.slice_rows(matrix.offset, matrix.local_elements());
  const Tensor whole = memory.x.slice_rows(0, rows * cols).reshape({rows, cols});
  // The part of the rank with this coordinate along tp: some rows, or some columns.
  const auto part_of = [&](const Tensor& of, int rank) {
    return matrix.local_rows < rows ? of.slice_rows(rank * matrix.local_rows, matrix.local_rows)
                                    : of.slice_cols(rank * matrix.local_cols, matrix.local_cols);
  };
  const base::Shape local = {matrix.local_rows, matrix.local_cols};
  const int ranks = parts_.tensor.ranks();
  const int rank = parts_.groups.coord()[spec::Axis::tp];
  TRIREME_CHECK(ranks * matrix.local_elements() == rows * cols,
                "a matrix of {} elements in {} parts of {}", rows * cols, ranks,
                matrix.local_elements());
  if (ranks == 1) {
    ops::copy(stream, {.x = own.reshape(local), .d = whole});
  } else {
    const Tensor gathered = memory.next.slice_rows(0, rows * cols);
    parts_.tensor.gather_update(gathered, own);
    for (int r = 0; r < ranks; ++r) {
      const Tensor from = gathered.slice_rows(r * matrix.local_elements(), matrix.local_elements());
      ops::copy(stream, {.x = from.reshape(local), .d = part_of(whole, r)});
    }
  }
  const Tensor direction = optim::newton_schulz(stream, memory, rows, cols, options_.ns_steps);
  ops::copy(stream, {.x = part_of(direction, rank), .d = own.reshape(local)});
}

}  // namespace trireme::engine
