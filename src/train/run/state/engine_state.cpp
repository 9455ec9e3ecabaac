// SPDX-License-Identifier: Apache-2.0
#include "train/run/state/engine_state.h"

#include <algorithm>
#include <map>
#include <string>

#include "base/error.h"
#include "comm/mesh.h"
#include "engine/state/upload_ring.h"
#include "spec/parallel/bucket.h"
#include "spec/parallel/data_parallel.h"
#include "spec/parallel/shard.h"
#include "spec/state/state_layout.h"
#include "train/checkpointing/saved_state.h"

namespace trireme::train {
namespace {

// The boxes of a tensor, a list for each part that has some, and the values of these parts.
struct HeldTensor {
  ckpt::TensorInfo tensor;
  std::vector<std::vector<spec::Piece>> boxes;
  std::vector<const float*> values;
};

std::map<std::string, HeldTensor> held_tensors(const EngineState& state) {
  std::map<std::string, HeldTensor> held;
  for (const EngineState::Part& part : state.parts) {
    for (const ckpt::TensorPieces& found : part.tensors) {
      HeldTensor& to = held[found.tensor.name];
      to.tensor = found.tensor;
      to.boxes.push_back(found.pieces);
      to.values.push_back(part.values.data());
    }
  }
  return held;
}

void run(const spec::Copy& copy, const float* source, float* target) {
  int64_t rows = 1;  // of the innermost dimension
  for (size_t dim = 0; dim + 1 < copy.count.size(); ++dim) rows *= copy.count[dim];
  for (int64_t row = 0; row < rows; ++row) {
    int64_t from = copy.source_offset, to = copy.target_offset;
    int64_t rest = row;
    for (size_t dim = copy.count.size() - 1; dim-- > 0; rest /= copy.count[dim]) {
      from += rest % copy.count[dim] * copy.source_stride[dim];
      to += rest % copy.count[dim] * copy.target_stride[dim];
    }
    std::copy_n(source + from, copy.count.back(), target + to);
  }
}

}  // namespace

int64_t EngineState::bytes() const {
  int64_t sum = 0;
  for (const Part& part : parts) sum += std::ssize(part.values);
  return sum * static_cast<int64_t>(sizeof(float));
}

std::vector<engine::Engine::StateRange> state_ranges(const spec::ModelSpec& model,
                                                     const spec::Plan& plan, int rank) {
  const spec::Coord coord = comm::coord_of(plan.mesh, rank);
  std::vector<engine::Engine::StateRange> all;
  for (const int layer : spec::layers_of_rank(model, plan, coord[spec::Axis::pp])) {
    const std::vector<spec::StateTensor> state = spec::state_of(model, layer, plan);
    bool is_first = true;  // own tensors belong to the first bucket of a layer
    for (const spec::BucketLayout& layout :
         spec::layer_buckets(model, layer, plan.recipe, plan.mesh)) {
      for (const spec::StateTensor& tensor : spec::bucket_state(state, layout)) {
        if (tensor.is_own() && !is_first) continue;
        const spec::Range range =
            tensor.is_own()
                ? spec::Range{0, spec::own_state_spec(tensor, plan.mesh).shape.elements()}
                : spec::state_range(tensor, plan, coord, layout);
        if (range.begin == range.end) continue;
        all.push_back({.layer = layer,
                       .view = layout.view,
                       .is_matrix = layout.is_matrix,
                       .tensor = tensor,
                       .range = range,
                       .floats = {}});
      }
      is_first = false;
    }
  }
  return all;
}

int64_t state_copy_bytes(const spec::ModelSpec& model, const spec::Plan& plan, int rank) {
  int64_t elements = 0;
  for (const auto& part : state_ranges(model, plan, rank)) {
    elements += part.range.end - part.range.begin;
  }
  return elements * static_cast<int64_t>(sizeof(float));
}

EngineState take_state(engine::Engine& engine, const spec::ModelSpec& model,
                       const spec::Coord& coord) {
  EngineState state;
  for (const engine::Engine::StateRange& range : engine.state()) {
    state.parts.push_back(
        {pieces_of(range, model, engine.plan(), coord), engine.read_state(range)});
  }
  state.step = engine.step_state();
  state.step.overflow = 0;  // the new engine repeats the step
  return state;
}

void put_state(engine::Engine& engine, const spec::ModelSpec& model, const spec::Coord& coord,
               const EngineState& state) {
  const std::map<std::string, HeldTensor> held = held_tensors(state);
  const auto ring = engine::UploadRing::make_for(engine.compute(), state.bytes());
  for (const engine::Engine::StateRange& range : engine.state()) {
    std::vector<float> values(static_cast<size_t>(range.range.end - range.range.begin));
    for (const ckpt::TensorPieces& wanted : pieces_of(range, model, engine.plan(), coord)) {
      const auto found = held.find(wanted.tensor.name);
      if (found == held.end() || found->second.tensor != wanted.tensor) {
        throw base::Error(fmt::format("the training state has no tensor {} of this shape among {}",
                                      wanted.tensor.name, held.size()));
      }
      const HeldTensor& from = found->second;
      try {
        for (const spec::Copy& copy : spec::reshard(from.boxes, wanted.pieces)) {
          run(copy, from.values[static_cast<size_t>(copy.source)], values.data());
        }
      } catch (const base::ConfigError& error) {
        throw base::Error(fmt::format("the training state lacks a part of {}: {}",
                                      wanted.tensor.name, error.what()));
      }
    }
    engine.write_state(range, values, ring.get());
  }
  if (ring) ring->finish();
  engine.set_step_state(state.step);
  engine.state_changed();
}

}  // namespace trireme::train
