// SPDX-License-Identifier: Apache-2.0
// Which elements of a layer's state (spec/state/state.h) a rank holds, and the bytes that they
// take.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "spec/parallel/bucket.h"
#include "spec/plan.h"

namespace trireme::spec {

// Returns the state of a layer of the plan. Under an inference plan that is inference_state().
std::vector<StateTensor> state_of(const ModelSpec&, int layer, const Plan&);

// Returns the state of a layer as one of its buckets has it: the weights of codes are fp32 and
// apart from them.
std::vector<StateTensor> bucket_state(std::span<const StateTensor>, const BucketLayout&);
// Returns the scales of all codes of a rank, in the order of its buckets: of dense buckets, and of
// expert buckets. Empty shapes if there are none.
std::array<base::TensorSpec, 2> weight_scale_specs(std::span<const BucketLayout>);

// Returns the elements of the bucket that the tensor covers. REQUIRES: it is no own tensor.
Range covered_range(const StateTensor&, const BucketLayout&);
// Returns those of them that the rank's optimizer updates; begin == end if there are none.
Range state_range(const StateTensor&, const Plan&, const Coord&, const BucketLayout&);
// Returns a rank's part of an own tensor, flat.
base::TensorSpec own_state_spec(const StateTensor&, const Sizes&);
// Do ranks along tp have different parts of an own tensor?
bool is_cut_along_tp(const StateTensor&);

// Bytes of a layer's state besides its parameters. Ranks along the data axes hold different
// elements, so the tensors of a bucket share memory that is as large as any rank needs.
struct StateBytes {
  int64_t elements = 0;  // fp32, of tensors with an element per parameter, except master weights
  int64_t total = 0;     // with master weights and own tensors
};
StateBytes state_bytes(std::span<const StateTensor>, const Plan&, const BucketLayout&);

// Returns the bytes that a rank sends at the end of a step to reduce the own tensors of these
// layers.
int64_t state_traffic(std::span<const StateTensor>, const Plan&);

}  // namespace trireme::spec
