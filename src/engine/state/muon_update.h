// SPDX-License-Identifier: Apache-2.0
// MuonUpdate: Muon's update of the matrices of a bucket, which needs whole matrices. Each rank adds
// its gradients to its part of the momentum; the parts are gathered; each matrix is computed by one
// rank of the data group (spec::muon_owners()), which broadcasts the direction; each rank then
// moves its part of the weights. Momentum and weights are updated element by element, and a matrix
// has the same direction on any rank, so the bits do not depend on the data axes.
//
// The ranks of the data group share the matrices of one layer at a time: more than seven of them
// gain nothing. Ranks along tp repeat the work of the same matrix.
#pragma once

#include <vector>

#include "device/memory.h"
#include "engine/groups/data_groups.h"
#include "engine/groups/tensor_group.h"
#include "engine/state/buckets.h"
#include "engine/state/train_state.h"
#include "optim/newton_schulz.h"
#include "spec/state/muon.h"

namespace trireme::engine {

class MuonUpdate {
 public:
  // The references must outlive it.
  struct Parts {
    const spec::Plan& plan;
    DataGroups& groups;
    TensorGroup& tensor;
    const Buckets& buckets;
    const TrainState& state;
    const UpdateGate& gate;
    device::Arena& scratch;     // has room for spec::muon_scratch()
    device::Tensor step_state;  // one kernels::StepState
    device::Tensor changes;     // one kernels::WideSum
  };
  MuonUpdate(const Parts&, const optim::MuonOptions&, float weight_decay);

  // Updates the matrices of a bucket, if it has any, on the compute stream. Collective.
  void update(int bucket);

 private:
  struct OfBucket {
    std::vector<spec::MuonMatrix> matrices;
    std::vector<int> owners;  // by matrix
  };
  // Replaces this rank's part of the matrix in `u`, the momentum of the bucket, by its direction.
  void compute(const spec::MuonMatrix&, device::Tensor u, const optim::NewtonSchulzMemory&);

  Parts parts_;
  optim::MuonOptions options_;
  float weight_decay_;
  std::vector<OfBucket> buckets_;
};

}  // namespace trireme::engine
