// SPDX-License-Identifier: Apache-2.0
// StateAccess: how the host reads and writes an engine's weights, gradients and training state:
// whole parameters by name, or this rank's ranges of buckets, which checkpoints save. With several
// ranks, calls by name are collective: all ranks make them together, in the same order.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "device/device.h"
#include "engine/groups/data_groups.h"
#include "engine/groups/expert_group.h"
#include "engine/groups/tensor_group.h"
#include "engine/precision/weight_codes.h"
#include "engine/state/buckets.h"
#include "engine/state/train_state.h"
#include "engine/step/pipe.h"
#include "kernels/step_state.h"
#include "spec/model.h"
#include "spec/plan.h"

namespace trireme::engine {

class UploadRing;

class StateAccess {
 public:
  // Parts of an engine, which must outlive this object.
  struct Parts {
    const spec::ModelSpec& model;
    const spec::Plan& plan;
    device::Stream& compute;
    DataGroups& groups;
    TensorGroup& tensor;
    ExpertGroup& experts;
    Pipe& pipe;
    Buckets& buckets;
    TrainState& state;
    WeightCodes& codes;
    device::Tensor step_state;  // one kernels::StepState
  };
  explicit StateAccess(const Parts&);

  // Sets initial weights, a function of (seed, name, element). Collective.
  void init_weights(uint64_t seed);

  // ---- parameters and gradients by name, whole, in fp32; each call waits for the device.
  struct ParamInfo {
    std::string name;
    std::vector<int64_t> shape;
  };
  std::vector<ParamInfo> parameters() const;
  std::vector<float> read_weights(const std::string& name);
  // Also writes an own tensor of a layer that forward passes read, by its name in checkpoints
  // (spec::saved_name()).
  void write_weights(const std::string& name, std::span<const float> values);
  // Returns gradients of the last step. REQUIRES: no forward has run since, because it may reuse
  // their memory.
  std::vector<float> read_grads(const std::string& name);
  // Returns the hash of all fp32 weights, in the order of parameters().
  std::string weights_sha256();

  // ---- state: everything besides the batch that the next step depends on
  // This rank's part of one tensor of one layer (spec/state/state.h).
  struct StateRange {
    int layer = 0;                                  // of the model
    spec::ParamView view = spec::ParamView::dense;  // of the bucket
    bool is_matrix = false;                         //   as BucketKey
    spec::StateTensor tensor;
    spec::Range range;         // elements of the bucket; of an own tensor: of its flat form
    optim::FlatFloats floats;  // a view of the range
  };
  // Returns views of the state that this rank updates, layer by layer in the order of
  // spec::state_of(); tensors of which it has no elements are left out. They are current once the
  // compute stream has drained. REQUIRES: a training plan.
  std::vector<StateRange> state();
  // Queues deferred updates, as state() does: ranges returned by an earlier state() are current
  // once the compute stream has drained.
  void flush_updates();
  // Read or write a range of state() as floats. Both wait for the device, unless values go through
  // a ring of the compute stream: they are written after its finish().
  std::vector<float> read_state(const StateRange&);
  void write_state(const StateRange&, std::span<const float> values, UploadRing* ring = nullptr);
  // Publishes state that write_state() has changed on all ranks. Collective.
  void state_changed();
  // The state of learning rate, clipping and skipping. Both wait for the device.
  kernels::StepState step_state();
  void set_step_state(const kernels::StepState&);

 private:
  struct Located {
    int pp_rank = 0;  // the rank along pp that has the parameter
    int bucket = -1;  // its bucket on that rank; -1 on others
    spec::Param param;
    int64_t offset = 0, elements = 0;  // in the bucket's flat vectors
  };

  void publish_weights(int bucket);
  // Writes an own tensor that forward passes read. Returns false if there is none of this name.
  bool write_input(const std::string& name, std::span<const float> values);
  // Returns the fp32 weights that this rank updates, or the parameters in inference.
  optim::FlatFloats own_weights(int bucket) const;
  Located locate(const std::string& name) const;
  // Returns the whole parameter on every rank. `own` is this rank's part of the bucket; empty if
  // another pp rank has the parameter.
  std::vector<float> read(const Located&, const optim::FlatFloats& own);
  // Returns the whole parameter from the parts of this rank and its peers along tp, or along ep and
  // etp. Collective.
  std::vector<float> assemble(const spec::Param&, std::span<const float> own);

  const spec::ModelSpec& model_;
  const spec::Plan& plan_;
  device::Stream& compute_;
  DataGroups& groups_;
  TensorGroup& tensor_;
  ExpertGroup& experts_;
  Pipe& pipe_;
  Buckets& buckets_;
  TrainState& state_;
  WeightCodes& codes_;
  device::Tensor step_state_;
};

}  // namespace trireme::engine
