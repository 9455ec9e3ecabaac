// SPDX-License-Identifier: Apache-2.0
#include "layouts.h"

#include <fmt/core.h>

#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "base/rng.h"
#include "ckpt/bucket_pieces.h"
#include "ckpt/disk/aligned.h"
#include "spec/parallel/data_parallel.h"

namespace trireme::ckpt_tests {
namespace {

using spec::Axis;

constexpr const char* kinds[] = {"weight", "m", "v"};

spec::Plan plan_of(const Layout& layout) {
  spec::Plan plan;
  plan.mesh[Axis::dp] = layout.dp;
  plan.mesh[Axis::zero] = layout.zero;
  plan.mesh[Axis::tp] = layout.tp;
  plan.mesh[Axis::pp] = layout.pp;
  plan.zero.optim = layout.zero > 1;
  return plan;
}

// The mesh is [pp, dp, zero, tp], with the last axis the fastest.
spec::Coord coord_of(const Layout& layout, int rank) {
  spec::Coord coord;
  coord[Axis::tp] = rank % layout.tp;
  coord[Axis::zero] = rank / layout.tp % layout.zero;
  coord[Axis::dp] = rank / layout.tp / layout.zero % layout.dp;
  coord[Axis::pp] = rank / layout.tp / layout.zero / layout.dp;
  return coord;
}

Held held_by(const spec::ModelSpec& model, const Layout& layout, int rank, bool saves) {
  const spec::Plan plan = plan_of(layout);
  const spec::Coord coord = coord_of(layout, rank);
  const int layers = static_cast<int>(model.layers.size());
  Held held;
  for (int layer = 0; layer < layers; ++layer) {
    if (layer * layout.pp / layers != coord[Axis::pp]) continue;
    const std::vector<spec::Param> params = spec::params_of(model, layer);
    const spec::BucketLayout bucket = spec::bucket_layout(params, plan.mesh);
    const spec::Range range = saves ? spec::reduced_range(plan, coord, bucket.size())
                                    : spec::updated_range(plan, coord, bucket.size());
    const auto parts = ckpt::bucket_pieces(params, bucket, plan.mesh, coord, range);
    for (const char* kind : kinds) {
      for (const ckpt::ParamPieces& part : parts) {
        const spec::Param& param = params[static_cast<size_t>(part.param)];
        if (saves && !ckpt::saves_along_tp(param, coord)) continue;
        ckpt::TensorPieces pieces{
            {fmt::format("{}/{}", kind, param.shard.name), base::DType::f32, param.shard.shape},
            part.pieces};
        for (spec::Piece& piece : pieces.pieces) piece.local += held.elements;
        held.tensors.push_back(std::move(pieces));
      }
      held.elements += range.end - range.begin;
    }
  }
  return held;
}

// Copies the elements of a box, row-major.
void gather(const ckpt::TensorInfo& tensor, const std::vector<float>& values,
            const std::vector<int64_t>& lo, const std::vector<int64_t>& hi, float* out) {
  const size_t ndim = lo.size();
  TRIREME_CHECK(ndim == 1 || ndim == 2, "{} dimensions", ndim);
  const int64_t columns = ndim == 2 ? tensor.shape[1] : tensor.shape[0];
  const int64_t first = lo[ndim - 1], count = hi[ndim - 1] - first;
  const int64_t row_begin = ndim == 2 ? lo[0] : 0, row_end = ndim == 2 ? hi[0] : 1;
  for (int64_t row = row_begin; row < row_end; ++row, out += count) {
    std::copy_n(values.begin() + row * columns + first, count, out);
  }
}

}  // namespace

std::string Layout::name() const {
  return fmt::format("dp {} zero {} tp {} pp {}", dp, zero, tp, pp);
}

std::vector<Layout> all_layouts(const spec::ModelSpec& model, int max_ranks) {
  std::vector<Layout> layouts;
  for (int dp = 1; dp <= max_ranks; ++dp) {
    for (int zero = 1; dp * zero <= max_ranks; ++zero) {
      for (int tp = 1; dp * zero * tp <= max_ranks; ++tp) {
        for (int pp = 1; dp * zero * tp * pp <= max_ranks; ++pp) {
          const Layout layout{dp, zero, tp, pp};
          try {
            saved_by(model, layout, 0);
            saved_by(model, layout, layout.ranks() - 1);
            if (pp > 1) saved_by(model, {1, 1, tp, 1}, 0);
          } catch (const base::ConfigError&) {
            continue;
          }
          layouts.push_back(layout);
        }
      }
    }
  }
  return layouts;
}

size_t State::find(const std::string& name) const {
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].name == name) return i;
  }
  TRIREME_CHECK(false, "no tensor {}", name);
  return 0;
}

State state_of(const spec::ModelSpec& model) {
  State state;
  for (const ckpt::TensorPieces& held : saved_by(model, {}, 0).tensors) {
    state.tensors.push_back(held.tensor);
    const base::RngKey key = base::rng_key(3, held.tensor.name);
    auto& values =
        state.values.emplace_back(static_cast<size_t>(ckpt::bytes_of(held.tensor)) / sizeof(float));
    for (size_t i = 0; i < values.size(); ++i) values[i] = base::rng_normal(key, i, 1.0F);
  }
  return state;
}

Held saved_by(const spec::ModelSpec& model, const Layout& layout, int rank) {
  return held_by(model, layout, rank, true);
}
Held wanted_by(const spec::ModelSpec& model, const Layout& layout, int rank) {
  return held_by(model, layout, rank, false);
}

void save(ckpt::Disk& disk, const std::filesystem::path& root, int64_t step,
          const spec::ModelSpec& model, const Layout& layout, const State& state) {
  const ckpt::Draft draft = ckpt::begin_generation(disk, root, step);
  ckpt::Manifest manifest;
  manifest.step = step;
  manifest.tensors = state.tensors;
  manifest.state = {{"step", step}};
  ckpt::AlignedBytes memory;
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    const ckpt::FileLayout file = ckpt::plan_file(saved_by(model, layout, rank).tensors);
    const auto bytes = memory.of(file.bytes);
    std::ranges::fill(bytes, std::byte{0});
    for (const ckpt::SavedTensor& saved : file.tensors) {
      const auto& values = state.values[state.find(saved.tensor.name)];
      for (const ckpt::SavedBox& box : saved.boxes) {
        std::vector<float> elements(static_cast<size_t>(ckpt::elements_of(box)));
        gather(saved.tensor, values, box.lo, box.hi, elements.data());
        std::memcpy(bytes.data() + box.offset, elements.data(), elements.size() * sizeof(float));
      }
    }
    manifest.files.push_back(
        ckpt::write_data(disk, {draft.folder, rank, file, bytes}, {.queue_depth = 1}));
  }
  ckpt::commit(disk, draft, manifest);
}

std::string load_and_compare(const ckpt::Generation& generation, const spec::ModelSpec& model,
                             const Layout& layout, const State& state) {
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    const Held wanted = wanted_by(model, layout, rank);
    std::vector<float> loaded(static_cast<size_t>(wanted.elements), -9.0F), expected = loaded;
    std::vector<ckpt::ReadRequest> requests;
    for (const ckpt::TensorPieces& held : wanted.tensors) {
      requests.push_back({held.tensor, held.pieces, std::as_writable_bytes(std::span(loaded))});
      for (const spec::Piece& piece : held.pieces) {
        gather(held.tensor, state.values[state.find(held.tensor.name)], piece.lo, piece.hi,
               expected.data() + piece.local);
      }
    }
    generation.read(requests, {.queue_depth = 1});
    if (loaded != expected) return fmt::format("rank {} of {}", rank, layout.name());
  }
  return "";
}

}  // namespace trireme::ckpt_tests
