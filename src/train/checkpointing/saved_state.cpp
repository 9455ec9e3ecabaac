// SPDX-License-Identifier: Apache-2.0
#include "train/checkpointing/saved_state.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/error.h"
#include "base/split_float.h"
#include "base/text/json.h"
#include "ckpt/bucket_pieces.h"
#include "device/host_registration.h"
#include "engine/state/upload_ring.h"
#include "spec/parallel/data_parallel.h"
#include "spec/state/float8_state.h"
#include "spec/state/state_layout.h"
#include "train/checkpointing/resume_point.h"

namespace trireme::train {
namespace {

ckpt::TensorInfo tensor_of(const spec::StateTensor& tensor, const spec::Param& param) {
  return {spec::saved_name(tensor, param.shard.name), base::DType::f32, param.shard.shape};
}

ckpt::TensorInfo own_tensor_of(const spec::StateTensor& tensor, const spec::ModelSpec& model,
                               int layer) {
  return {spec::saved_name(tensor, spec::name_of_layer(model, layer)), tensor.dtype,
          tensor.shard.shape};
}

// Returns this rank's part of an own tensor; Piece::local counts its elements.
std::vector<spec::Piece> own_pieces(const spec::StateTensor& tensor, const spec::Sizes& mesh,
                                    const spec::Coord& coord) {
  return spec::pieces(tensor.shard, mesh, coord, {0, spec::local_elements(tensor.shard, mesh)});
}

bool saves_own(const spec::StateTensor& tensor, const spec::Sizes& mesh, const spec::Coord& coord) {
  return spec::reduced_place(mesh, coord, spec::ParamView::dense) == 0 &&
         (spec::is_cut_along_tp(tensor) || coord[spec::Axis::tp] == 0);
}

int64_t elements_of(const spec::Piece& piece) {
  int64_t elements = 1;
  for (size_t d = 0; d < piece.lo.size(); ++d) elements *= piece.hi[d] - piece.lo[d];
  return elements;
}

// A tensor of a layer of which a rank saves pieces. They count elements from `first` of the rank's
// part of the state (engine::Engine::StateRange).
struct SavedPart {
  const spec::StateTensor& state;
  spec::ParamView view;
  bool is_matrix;
  ckpt::TensorInfo tensor;
  const std::vector<spec::Piece>& pieces;
  int64_t first = 0;  // element of the bucket; 0 for own tensors
};

// Calls each(SavedPart) for everything that a rank saves of a layer, in the order of its file.
template <typename Each>
void for_each_saved(const spec::ModelSpec& model, const spec::Plan& plan, const spec::Coord& coord,
                    int layer, const Each& each) {
  const std::vector<spec::StateTensor> state = spec::state_of(model, layer, plan);
  const std::vector<spec::Param> params = spec::params_of(model, layer, plan.recipe);
  for (const spec::BucketLayout& layout :
       spec::layer_buckets(model, layer, plan.recipe, plan.mesh)) {
    const spec::Range range = spec::reduced_range(plan, coord, layout.size());
    for (const ckpt::ParamPieces& found :
         ckpt::bucket_pieces(params, layout, plan.mesh, coord, range)) {
      const spec::Param& param = params[static_cast<size_t>(found.param)];
      if (!ckpt::saves_along_tp(param, coord)) continue;
      for (const spec::StateTensor& tensor : state) {
        if (!spec::covers(tensor, param)) continue;
        each(SavedPart{tensor, layout.view, layout.is_matrix, tensor_of(tensor, param),
                       found.pieces, range.begin});
      }
    }
  }
  for (const spec::StateTensor& tensor : state) {
    if (!tensor.is_own() || !saves_own(tensor, plan.mesh, coord)) continue;
    const std::vector<spec::Piece> pieces = own_pieces(tensor, plan.mesh, coord);
    if (!pieces.empty()) {
      each(SavedPart{tensor, spec::ParamView::dense, false, own_tensor_of(tensor, model, layer),
                     pieces, 0});
    }
  }
}

// Split floats are copied block by block, so that little memory suffices to join them.
void add_copies(const optim::FlatFloats& from, int64_t to, bool is_own,
                std::vector<StagedCopy>& copies) {
  const int64_t elements = from.values.elements();
  const int64_t block = from.low ? StagedCopy::max_split_elements : elements;
  for (int64_t first = 0; first < elements; first += block) {
    const optim::FlatFloats part = from.slice(first, std::min(block, elements - first));
    copies.push_back({part, to + first * static_cast<int64_t>(sizeof(float)), is_own});
  }
}

}  // namespace

void StagedCopy::start(device::Stream& stream, std::byte* file) const {
  const auto download = [&](const device::Tensor& part, int64_t at) {
    constexpr int64_t piece_bytes = device::HostRegistration::piece_bytes;
    TRIREME_CHECK(part.is_contiguous(), "rows {} elements apart", part.row_stride);
    for (int64_t first = 0, count = 0; first < part.bytes(); first += count) {
      count = std::min(part.bytes() - first, piece_bytes - (at + first) % piece_bytes);
      stream.download({file + at + first, static_cast<size_t>(count)},
                      device::view_of(part.data + first, {{count}, base::DType::u8}));
    }
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

std::string saved_weight_name(const std::string& param) {
  return spec::saved_name({.name = spec::weight_state, .saved_as = "weight"}, param);
}

std::vector<ckpt::TensorInfo> saved_tensors(const spec::ModelSpec& model, const spec::Plan& plan) {
  std::vector<ckpt::TensorInfo> all;
  for (int layer = 0; layer < static_cast<int>(model.layers.size()); ++layer) {
    const std::vector<spec::StateTensor> state = spec::state_of(model, layer, plan);
    for (const spec::Param& param : spec::params_of(model, layer)) {
      if (param.tied_copy || param.shard.shape.empty()) continue;
      for (const spec::StateTensor& tensor : state) {
        if (spec::covers(tensor, param)) all.push_back(tensor_of(tensor, param));
      }
    }
    for (const spec::StateTensor& tensor : state) {
      if (tensor.is_own()) all.push_back(own_tensor_of(tensor, model, layer));
    }
  }
  return all;
}

std::vector<ckpt::TensorInfo> saved_inputs(const spec::ModelSpec& model) {
  std::vector<ckpt::TensorInfo> all;
  for (int layer = 0; layer < static_cast<int>(model.layers.size()); ++layer) {
    for (const spec::StateTensor& tensor : spec::inference_state(
             spec::state_of(model, layer, {}, spec::recipe_of(spec::Precision::fp32)))) {
      all.push_back(own_tensor_of(tensor, model, layer));
    }
  }
  return all;
}

std::vector<ckpt::TensorPieces> saved_pieces(const spec::ModelSpec& model, const spec::Plan& plan,
                                             const spec::Coord& coord) {
  std::vector<ckpt::TensorPieces> all;
  for (const int layer : spec::layers_of_rank(model, plan, coord[spec::Axis::pp])) {
    for_each_saved(model, plan, coord, layer, [&](const SavedPart& part) {
      all.push_back({part.tensor, part.pieces});
    });
  }
  return all;
}

std::vector<ckpt::TensorPieces> pieces_of(const engine::Engine::StateRange& part,
                                          const spec::ModelSpec& model, const spec::Plan& plan,
                                          const spec::Coord& coord) {
  if (part.tensor.is_own()) {
    return {
        {own_tensor_of(part.tensor, model, part.layer), own_pieces(part.tensor, plan.mesh, coord)}};
  }
  const std::vector<spec::Param> params = spec::params_of(model, part.layer, plan.recipe);
  const spec::BucketLayout layout =
      spec::bucket_layout(params, plan.mesh, spec::BucketKind{part.view, part.is_matrix});
  std::vector<ckpt::TensorPieces> all;
  for (ckpt::ParamPieces& found :
       ckpt::bucket_pieces(params, layout, plan.mesh, coord, part.range)) {
    all.push_back({tensor_of(part.tensor, params[static_cast<size_t>(found.param)]),
                   std::move(found.pieces)});
  }
  return all;
}

std::vector<StagedCopy> staged_copies(engine::Engine& engine, const spec::ModelSpec& model,
                                      const spec::Coord& coord, const ckpt::FileLayout& layout) {
  const std::vector<engine::Engine::StateRange> state = engine.state();
  std::vector<StagedCopy> copies;
  size_t next = 0;  // in the file, whose order is that of saved_pieces()
  for (const int layer : spec::layers_of_rank(model, engine.plan(), coord[spec::Axis::pp])) {
    for_each_saved(model, engine.plan(), coord, layer, [&](const SavedPart& part) {
      const auto from = std::find_if(state.begin(), state.end(), [&](const auto& held) {
        return held.layer == layer && held.view == part.view && held.is_matrix == part.is_matrix &&
               held.tensor.name == part.state.name;
      });
      const ckpt::SavedTensor& to = layout.tensors[next++];
      TRIREME_CHECK(
          from != state.end() && to.tensor == part.tensor && to.boxes.size() == part.pieces.size(),
          "'{}' is not where the layout has it", part.tensor.name);
      for (size_t i = 0; i < part.pieces.size(); ++i) {
        const int64_t first = part.first - from->range.begin + part.pieces[i].local;
        add_copies(from->floats.slice(first, elements_of(part.pieces[i])), to.boxes[i].offset,
                   part.state.is_own(), copies);
      }
    });
  }
  return copies;
}

bool is_imported(const ckpt::Generation& generation) {
  return generation.manifest().state.contains("imported");
}

namespace {

bool is_new_with_recipe(const spec::StateTensor& tensor) {
  return tensor.name == spec::amax_state || tensor.name == spec::amax_history_state;
}

bool contains(const ckpt::Generation& generation, const std::string& name) {
  return std::ranges::any_of(generation.manifest().tensors,
                             [&](const ckpt::TensorInfo& saved) { return saved.name == name; });
}

// Reads this rank's part of each layer and calls layer(state ranges of the layer, their values).
template <typename Layer>
void read_layers(engine::Engine& engine, const spec::ModelSpec& model, const spec::Coord& coord,
                 const ckpt::Generation& generation, const Layer& layer) {
  const std::vector<engine::Engine::StateRange> state = engine.state();
  for (size_t first = 0, count = 0; first < state.size(); first += count) {
    const int index = state[first].layer;
    count = 1;
    while (first + count < state.size() && state[first + count].layer == index) ++count;
    const auto ranges = std::span(state).subspan(first, count);
    // Padding is not saved: it stays zero.
    std::vector<std::vector<float>> values;
    std::vector<ckpt::ReadRequest> requests;
    for (const engine::Engine::StateRange& part : ranges) {
      values.emplace_back(static_cast<size_t>(part.range.end - part.range.begin));
      const auto bytes = std::as_writable_bytes(std::span(values.back()));
      if (is_imported(generation) && part.tensor.name != spec::weight_state) continue;
      // Runs with another recipe have no history of magnitudes: it begins anew.
      if (part.tensor.is_own() && is_new_with_recipe(part.tensor) &&
          !contains(generation, own_tensor_of(part.tensor, model, index).name)) {
        continue;
      }
      for (ckpt::TensorPieces& wanted : pieces_of(part, model, engine.plan(), coord)) {
        requests.push_back({std::move(wanted.tensor), std::move(wanted.pieces), bytes});
      }
    }
    generation.read(requests);
    layer(ranges, values);
  }
}

}  // namespace

void expect_optimizer(const spec::Plan& plan, const ckpt::Generation& generation) {
  if (is_imported(generation)) return;
  const std::string_view own = spec::name_of(plan.optimizer.kind);
  const std::string_view was =
      spec::name_of(saved_plan(generation.folder(), generation.manifest()).optimizer.kind);
  if (was == own) return;
  throw OtherOptimizer(fmt::format(
      "{}: contains the state of the optimizer {}, and this run has {}, which keeps other tensors; "
      "set optimizer.name = \"{}\", or start a new run from its weights (--init-from)",
      generation.folder().string(), was, own, was));
}

void load_state(engine::Engine& engine, const spec::ModelSpec& model, const spec::Coord& coord,
                const ckpt::Generation& generation) {
  expect_optimizer(engine.plan(), generation);
  int64_t elements = 0;
  for (const auto& part : engine.state()) elements += part.range.end - part.range.begin;
  const auto ring = engine::UploadRing::make_for(engine.compute(),
                                                 elements * static_cast<int64_t>(sizeof(float)));
  read_layers(engine, model, coord, generation, [&](const auto& ranges, const auto& values) {
    for (size_t i = 0; i < values.size(); ++i) {
      engine.write_state(ranges[i], values[i], ring.get());
    }
  });
  if (ring) ring->finish();
}

std::string state_difference(engine::Engine& engine, const spec::ModelSpec& model,
                             const spec::Coord& coord, const ckpt::Generation& generation) {
  std::string found;
  read_layers(engine, model, coord, generation, [&](const auto& ranges, const auto& values) {
    for (size_t i = 0; i < values.size() && found.empty(); ++i) {
      const std::vector<float> own = engine.read_state(ranges[i]);
      if (std::memcmp(own.data(), values[i].data(), own.size() * sizeof(float)) == 0) continue;
      found = spec::saved_name(ranges[i].tensor, spec::name_of_layer(model, ranges[i].layer));
    }
  });
  return found;
}

base::Json to_json(const kernels::StepState& state) {
  base::Json json = {
      {"applied", state.applied},
      {"skipped", state.skipped},
      {"skipped_in_a_row", state.skipped_in_a_row},
      {"norm_mean", state.norm_mean},
      {"norm_variance", state.norm_variance},
      {"row_first", state.row_first},
      {"row_norm", std::isfinite(state.row_norm) ? base::Json(state.row_norm) : base::Json()},
      {"row_mean", state.row_mean}};
  if (state.loss_scale > 0) {
    json["loss_scale"] = {{"scale", state.loss_scale},
                          {"hysteresis_left", state.hysteresis_left},
                          {"good_steps", state.good_steps},
                          {"not_finite", state.not_finite}};
  }
  return json;
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
    if (json.contains("loss_scale")) {
      const base::Json& loss = json.at("loss_scale");
      loss.at("scale").get_to(state.loss_scale);
      loss.at("hysteresis_left").get_to(state.hysteresis_left);
      loss.at("good_steps").get_to(state.good_steps);
      loss.at("not_finite").get_to(state.not_finite);
    }
  } catch (const base::Json::exception& error) {
    throw base::ConfigError(fmt::format("the checkpoint's state of clipping: {}", error.what()));
  }
  return state;
}

}  // namespace trireme::train
