// SPDX-License-Identifier: Apache-2.0
#include "spec/bucket.h"

#include "base/shape.h"

namespace trireme::spec {

BucketLayout bucket_layout(std::span<const Param> params, const Sizes& sizes) {
  BucketLayout layout;
  for (const bool decays : {true, false}) {
    for (size_t i = 0; i < params.size(); ++i) {
      const Param& param = params[i];
      if (param.tied_copy || param.shard.shape.empty() || param.decays != decays) continue;
      const int64_t elements = local_elements(param.shard, sizes);
      layout.entries.push_back({static_cast<int>(i), layout.elements, elements});
      layout.elements += base::round_up(elements, shard_grain_elements);
    }
    if (decays) layout.decayed = layout.elements;
  }
  layout.elements =
      base::round_up(layout.elements, shard_grain_elements * sizes[Axis::dp] * sizes[Axis::zero]);
  return layout;
}

}  // namespace trireme::spec
