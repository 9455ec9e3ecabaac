// SPDX-License-Identifier: Apache-2.0
#include "optim/adamw.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/ops.h"

namespace trireme::optim {

void adamw(device::Stream& stream, const AdamwShard& shard, const AdamwOptions& options,
           device::ConstTensor step_state) {
  const int64_t elements = shard.weights.param.elements();
  TRIREME_CHECK(shard.grad.elements() == elements && shard.decayed <= elements,
                "adamw: {} parameters, {} gradients, {} elements with weight decay", elements,
                shard.grad.elements(), shard.decayed);
  const auto update = [&](int64_t begin, int64_t end, float weight_decay) {
    if (begin == end) return;
    const int64_t count = end - begin;
    const ShardWeights weights = shard.weights.slice(begin, count);
    kernels::ChangeSquares changes;
    for (const spec::Range& range : shard.counted) {
      const int64_t from = std::max(range.begin, begin), to = std::min(range.end, end);
      if (from >= to) continue;
      TRIREME_CHECK(!changes.sum, "adamw: two counted ranges in [{}, {})", begin, end);
      changes = {shard.changes, from - begin, to - begin};
    }
    kernels::ops::adamw(stream, {.param = weights.param,
                                 .master = weights.master,
                                 .m = shard.m.slice_rows(begin, count),
                                 .v = shard.v.slice_rows(begin, count),
                                 .grad = shard.grad.slice_rows(begin, count),
                                 .state = step_state,
                                 .beta1 = options.beta1,
                                 .beta2 = options.beta2,
                                 .eps = options.eps,
                                 .weight_decay = weight_decay,
                                 .changes = changes});
  };
  update(0, shard.decayed, options.weight_decay);
  update(shard.decayed, elements, 0);
}

}  // namespace trireme::optim
