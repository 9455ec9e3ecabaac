// SPDX-License-Identifier: Apache-2.0
#include "train/checkpointing/saved_state.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/error.h"
#include "base/split_float.h"
#include "base/text/json.h"
#include "ckpt/bucket_pieces.h"
#include "spec/parallel/data_parallel.h"

namespace trireme::train {
namespace {

using Kind = engine::Engine::StateKind;
constexpr std::array<Kind, 3> kinds = {Kind::weight, Kind::first_moment, Kind::second_moment};

ckpt::TensorInfo tensor_of(Kind kind, const spec::Param& param) {
  return {state_name(kind, param.shard.name), base::DType::f32, param.shard.shape};
}

int64_t elements_of(const spec::Piece& piece) {
  int64_t elements = 1;
  for (size_t d = 0; d < piece.lo.size(); ++d) elements *= piece.hi[d] - piece.lo[d];
  return elements;
}

// Calls each(param, pieces, range) for every parameter of a layer that a rank saves; pieces count
// from the start of the range.
template <typename Each>
void for_each_saved(const spec::ModelSpec& model, const spec::Plan& plan, const spec::Coord& coord,
                    int layer, const Each& each) {
  const std::vector<spec::Param> params = spec::params_of(model, layer);
  const spec::BucketLayout layout = spec::bucket_layout(params, plan.mesh);
  const spec::Range range = spec::reduced_range(plan, coord, layout.elements);
  for (const ckpt::ParamPieces& found :
       ckpt::bucket_pieces(params, layout, plan.mesh, coord, range)) {
    const spec::Param& param = params[static_cast<size_t>(found.param)];
    if (ckpt::saves_along_tp(param, coord)) each(param, found.pieces, range);
  }
}

// Split floats are copied block by block, so that little memory suffices to join them.
void add_copies(const optim::FlatFloats& from, int64_t to, std::vector<StagedCopy>& copies) {
  const int64_t elements = from.values.elements();
  const int64_t block = from.low ? StagedCopy::max_split_elements : elements;
  for (int64_t first = 0; first < elements; first += block) {
    const optim::FlatFloats part = from.slice(first, std::min(block, elements - first));
    copies.push_back({part, to + first * static_cast<int64_t>(sizeof(float))});
  }
}

}  // namespace

void StagedCopy::start(device::Stream& stream, std::byte* file) const {
  const auto download = [&](const device::Tensor& part, int64_t at) {
    stream.download({file + at, static_cast<size_t>(part.bytes())}, part);
  };
  download(from.values, to);
  if (from.low) download(from.low, to + from.values.bytes());
}

void StagedCopy::finish(std::byte* file, std::span<std::byte> workspace) const {
  if (!from.low) return;
  TRIREME_CHECK(std::ssize(workspace) >= bytes(), "{} bytes for {}", workspace.size(), bytes());
  std::memcpy(workspace.data(), file + to, static_cast<size_t>(bytes()));
  const auto* split = reinterpret_cast<const uint16_t*>(workspace.data());
  const int64_t elements = from.values.elements();
  base::join_floats(split, split + elements, elements, reinterpret_cast<float*>(file + to));
}

std::string state_name(Kind kind, const std::string& param) {
  const char* prefix = kind == Kind::weight ? "weight/" : kind == Kind::first_moment ? "m/" : "v/";
  return prefix + param;
}

std::vector<ckpt::TensorPieces> saved_pieces(const spec::ModelSpec& model, const spec::Plan& plan,
                                             const spec::Coord& coord) {
  std::vector<ckpt::TensorPieces> all;
  for (const int layer : spec::layers_of_rank(model, plan, coord[spec::Axis::pp])) {
    for_each_saved(
        model, plan, coord, layer,
        [&](const spec::Param& param, const std::vector<spec::Piece>& pieces, const spec::Range&) {
          for (const Kind kind : kinds) all.push_back({tensor_of(kind, param), pieces});
        });
  }
  return all;
}

std::vector<StagedCopy> staged_copies(engine::Engine& engine, const spec::ModelSpec& model,
                                      const spec::Coord& coord, const ckpt::FileLayout& layout) {
  const std::vector<engine::Engine::StateRange> state = engine.state();
  std::vector<StagedCopy> copies;
  size_t next = 0;  // in the file, whose order is that of saved_pieces()
  for (const int layer : spec::layers_of_rank(model, engine.plan(), coord[spec::Axis::pp])) {
    for_each_saved(model, engine.plan(), coord, layer,
                   [&](const spec::Param& param, const std::vector<spec::Piece>& pieces,
                       const spec::Range& saved) {
                     for (const Kind kind : kinds) {
                       const auto from =
                           std::find_if(state.begin(), state.end(), [&](const auto& part) {
                             return part.layer == layer && part.kind == kind;
                           });
                       const ckpt::SavedTensor& to = layout.tensors[next++];
                       TRIREME_CHECK(from != state.end() && to.tensor == tensor_of(kind, param) &&
                                         to.boxes.size() == pieces.size(),
                                     "'{}' is not where the layout has it", param.shard.name);
                       for (size_t i = 0; i < pieces.size(); ++i) {
                         const int64_t first = saved.begin - from->range.begin + pieces[i].local;
                         add_copies(from->floats.slice(first, elements_of(pieces[i])),
                                    to.boxes[i].offset, copies);
                       }
                     }
                   });
  }
  return copies;
}

namespace {

// Reads this rank's part of each layer and calls layer(state ranges of the layer, their values).
template <typename Layer>
void read_layers(engine::Engine& engine, const spec::ModelSpec& model, const spec::Coord& coord,
                 const ckpt::Generation& generation, const Layer& layer) {
  const std::vector<engine::Engine::StateRange> state = engine.state();
  for (size_t first = 0; first < state.size(); first += kinds.size()) {
    const auto ranges = std::span(state).subspan(first, kinds.size());
    const std::vector<spec::Param> params = spec::params_of(model, state[first].layer);
    const spec::BucketLayout layout = spec::bucket_layout(params, engine.plan().mesh);
    // Padding is not saved: it stays zero.
    std::vector<std::vector<float>> values;
    std::vector<ckpt::ReadRequest> requests;
    for (const engine::Engine::StateRange& part : ranges) {
      values.emplace_back(static_cast<size_t>(part.range.end - part.range.begin));
      const auto bytes = std::as_writable_bytes(std::span(values.back()));
      for (const ckpt::ParamPieces& wanted :
           ckpt::bucket_pieces(params, layout, engine.plan().mesh, coord, part.range)) {
        const spec::Param& param = params[static_cast<size_t>(wanted.param)];
        requests.push_back({tensor_of(part.kind, param), wanted.pieces, bytes});
      }
    }
    generation.read(requests);
    layer(ranges, values);
  }
}

}  // namespace

void load_state(engine::Engine& engine, const spec::ModelSpec& model, const spec::Coord& coord,
                const ckpt::Generation& generation) {
  read_layers(engine, model, coord, generation, [&](const auto& ranges, const auto& values) {
    for (size_t i = 0; i < values.size(); ++i) engine.write_state(ranges[i], values[i]);
  });
}

std::string state_difference(engine::Engine& engine, const spec::ModelSpec& model,
                             const spec::Coord& coord, const ckpt::Generation& generation) {
  std::string found;
  read_layers(engine, model, coord, generation, [&](const auto& ranges, const auto& values) {
    for (size_t i = 0; i < values.size() && found.empty(); ++i) {
      const std::vector<float> own = engine.read_state(ranges[i]);
      if (std::memcmp(own.data(), values[i].data(), own.size() * sizeof(float)) == 0) continue;
      found = state_name(ranges[i].kind, spec::name_of_layer(model, ranges[i].layer));
    }
  });
  return found;
}

base::Json to_json(const kernels::StepState& state) {
  return {{"applied", state.applied},
          {"skipped", state.skipped},
          {"skipped_in_a_row", state.skipped_in_a_row},
          {"norm_mean", state.norm_mean},
          {"norm_variance", state.norm_variance},
          {"row_first", state.row_first},
          {"row_norm", std::isfinite(state.row_norm) ? base::Json(state.row_norm) : base::Json()},
          {"row_mean", state.row_mean}};
}

kernels::StepState step_state_from(const base::Json& json) {
  kernels::StepState state{};
  try {
    json.at("applied").get_to(state.applied);
    json.at("skipped").get_to(state.skipped);
    json.at("skipped_in_a_row").get_to(state.skipped_in_a_row);
    json.at("norm_mean").get_to(state.norm_mean);
    json.at("norm_variance").get_to(state.norm_variance);
    // Older checkpoints do not record the last row of skipped steps.
    state.row_first = json.value("row_first", int64_t{0});
    if (state.row_first > 0) {
      const base::Json& norm = json.at("row_norm");
      state.row_norm =
          norm.is_null() ? std::numeric_limits<double>::infinity() : norm.get<double>();
      json.at("row_mean").get_to(state.row_mean);
    }
  } catch (const base::Json::exception& error) {
    throw base::ConfigError(fmt::format("the checkpoint's state of clipping: {}", error.what()));
  }
  return state;
}

}  // namespace trireme::train
