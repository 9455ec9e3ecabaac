// SPDX-License-Identifier: Apache-2.0
#include "layouts.h"

#include <fmt/core.h>

#include <cstring>
#include <optional>

#include "base/check.h"
#include "base/error.h"
#include "base/rng.h"
#include "ckpt/bucket_pieces.h"
#include "ckpt/disk/aligned.h"
#include "spec/layout/layout.h"
#include "spec/parallel/data_parallel.h"

namespace trireme::ckpt_tests {
namespace {

using spec::Axis;

constexpr const char* kinds[] = {"weight", "m", "v"};

std::optional<spec::ExpertSizes> expert_sizes(const Layout& layout) {
  return spec::expert_sizes({.tp = layout.tp,
                             .dp_replicate = layout.dp,
                             .dp_shard = layout.zero,
                             .ep = layout.ep,
                             .etp = layout.etp});
}

spec::Plan plan_of(const spec::ModelSpec& model, const Layout& layout) {
  spec::Plan plan;
  plan.mesh[Axis::dp] = layout.dp;
  plan.mesh[Axis::zero] = layout.zero;
  plan.mesh[Axis::tp] = layout.tp;
  plan.mesh[Axis::pp] = layout.pp;
  plan.zero.optim = layout.zero > 1;
  if (spec::moe_of(model) == nullptr) return plan;
  const std::optional<spec::ExpertSizes> experts = expert_sizes(layout);
  TRIREME_CHECK(experts, "experts do not fit: {}", layout.name());
  plan.mesh[Axis::edp] = experts->edp;
  plan.mesh[Axis::ezero] = experts->ezero;
  plan.mesh[Axis::ep] = layout.ep;
  plan.mesh[Axis::etp] = layout.etp;
  return plan;
}

// Adds what the rank holds of the parameters of one view.
void add_bucket(const spec::Plan& plan, const spec::Coord& coord,
                const std::vector<spec::Param>& params, spec::ParamView view, bool saves,
                Held& held) {
  const spec::BucketLayout bucket = spec::bucket_layout(params, plan.mesh, view);
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

Held held_by(const spec::ModelSpec& model, const Layout& layout, int rank, bool saves) {
  const spec::Plan plan = plan_of(model, layout);
  const spec::Coord coord = spec::coord_of(plan.mesh, rank);
  const int layers = static_cast<int>(model.layers.size());
  Held held;
  for (int layer = 0; layer < layers; ++layer) {
    if (layer * layout.pp / layers != coord[Axis::pp]) continue;
    const std::vector<spec::Param> params = spec::params_of(model, layer);
    for (const spec::BucketKind& kind : spec::bucket_kinds(model, layer, plan.recipe)) {
      add_bucket(plan, coord, params, kind.view, saves, held);
    }
  }
  return held;
}

// Copies the elements of a box, row-major.
void gather(const ckpt::TensorInfo& tensor, const std::vector<float>& values,
            const std::vector<int64_t>& lo, const std::vector<int64_t>& hi, float* out) {
  std::vector<int64_t> at = lo;
  const int64_t count = hi.back() - lo.back();
  while (at.front() < hi.front()) {
    int64_t offset = 0;
    for (size_t d = 0; d < at.size(); ++d) offset = offset * tensor.shape[d] + at[d];
    out = std::copy_n(values.begin() + offset, count, out);
    // The next row.
    at.back() = hi.back();
    for (size_t d = at.size(); d-- > 1 && at[d] == hi[d]; ++at[d - 1]) at[d] = lo[d];
  }
}

}  // namespace

std::string Layout::name() const {
  const std::string experts = ep * etp == 1 ? "" : fmt::format(" ep {} etp {}", ep, etp);
  return fmt::format("dp {} zero {} tp {} pp {}{}", dp, zero, tp, pp, experts);
}

std::vector<Layout> all_layouts(const spec::ModelSpec& model, int max_ranks) {
  std::vector<Layout> layouts;
  const int max_experts = spec::moe_of(model) == nullptr ? 1 : max_ranks;
  const auto add = [&](const Layout& layout) {
    if (layout.ranks() > max_ranks || !expert_sizes(layout)) return;
    try {
      saved_by(model, layout, 0);
      saved_by(model, layout, layout.ranks() - 1);
      if (layout.pp > 1) {
        saved_by(
            model,
            {.dp = layout.dp * layout.zero, .tp = layout.tp, .ep = layout.ep, .etp = layout.etp},
            0);
      }
    } catch (const base::ConfigError&) {
      return;  // a layout that the rules refuse
    }
    layouts.push_back(layout);
  };
  for (int dp = 1; dp <= max_ranks; ++dp) {
    for (int zero = 1; dp * zero <= max_ranks; ++zero) {
      for (int tp = 1; dp * zero * tp <= max_ranks; ++tp) {
        for (int pp = 1; dp * zero * tp * pp <= max_ranks; ++pp) {
          for (int ep = 1; ep <= max_experts; ++ep) {
            for (int etp = 1; ep * etp <= max_experts; ++etp) add({dp, zero, tp, pp, ep, etp});
          }
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
