// SPDX-License-Identifier: Apache-2.0
#include "engine/state/state_access.h"

#include <algorithm>
#include <functional>

#include "base/check.h"
#include "base/error.h"
#include "base/rng.h"
#include "base/sha256.h"
#include "engine/state/host_floats.h"
#include "engine/state/upload_ring.h"
#include "kernels/ops.h"
#include "spec/parallel/data_parallel.h"

namespace trireme::engine {
namespace {

namespace ops = kernels::ops;

// A piece of a parameter as `count` boxes of [rows, cols], one after the other in the holder's
// part. In the row-major whole parameter the first begins at element `first`; rows are `width`,
// boxes `stride` elements apart.
struct Matrices {
  int64_t count = 1, rows = 1, cols = 0;
  int64_t first = 0, width = 0, stride = 0;
};

Matrices matrices_of(const spec::ShardSpec& shard, const spec::Piece& piece) {
  const size_t dims = shard.shape.size();
  TRIREME_CHECK(dims >= 1 && dims <= 3, "'{}' has {} dimensions", shard.name, dims);
  Matrices all;
  all.cols = piece.hi.back() - piece.lo.back();
  all.width = shard.shape.back();
  all.first = piece.lo.back();
  if (dims == 1) return all;
  all.rows = piece.hi[dims - 2] - piece.lo[dims - 2];
  all.first += piece.lo[dims - 2] * all.width;
  if (dims == 2) return all;
  all.count = piece.hi[0] - piece.lo[0];
  all.stride = shard.shape[1] * all.width;
  all.first += piece.lo[0] * all.stride;
  if (all.rows == shard.shape[1]) {  // adjacent boxes are one
    all.rows *= all.count;
    all.count = 1;
  }
  return all;
}

// Fills the flat range `d`, which holds `pieces` of a parameter, with the parameter's initial
// values.
void init_param(device::Stream& stream, const spec::Param& param, uint64_t seed,
                const std::vector<spec::Piece>& pieces, device::Tensor d) {
  if (param.init != spec::Init::normal) {
    ops::fill(stream, {.d = d, .value = param.init == spec::Init::ones ? 1.0F : 0.0F});
    return;
  }
  const base::RngKey key = base::rng_key(seed, param.shard.name);
  for (const spec::Piece& piece : pieces) {
    const Matrices of = matrices_of(param.shard, piece);
    const int64_t elements = of.rows * of.cols;
    for (int64_t i = 0; i < of.count; ++i) {
      ops::init_normal(
          stream,
          {.d = d.slice_rows(piece.local + i * elements, elements).reshape({of.rows, of.cols}),
           .key = key,
           .first = static_cast<uint64_t>(of.first + i * of.stride),
           .global_row_stride = static_cast<uint64_t>(of.width),
           .std_dev = param.init_std});
    }
  }
}

// Calls row(offset in the whole parameter, offset in the holder's part, elements) for every row of
// every piece of a parameter.
void for_each_row(const spec::ShardSpec& shard, const std::vector<spec::Piece>& pieces,
                  const std::function<void(int64_t whole, int64_t held, int64_t count)>& row) {
  for (const spec::Piece& piece : pieces) {
    const Matrices of = matrices_of(shard, piece);
    int64_t held = piece.local;
    for (int64_t i = 0; i < of.count; ++i) {
      for (int64_t r = 0; r < of.rows; ++r) {
        row(of.first + i * of.stride + r * of.width, held, of.cols);
        held += of.cols;
      }
    }
  }
}

int64_t elements_of(const spec::ShardSpec& shard) {
  int64_t elements = 1;
  for (const int64_t dim : shard.shape) elements *= dim;
  return elements;
}

void expect_elements(const std::string& name, const spec::ShardSpec& shard,
                     std::span<const float> values) {
  if (std::ssize(values) == elements_of(shard)) return;
  throw base::ConfigError(fmt::format("parameter '{}' has {} elements, but {} values were given",
                                      name, elements_of(shard), values.size()));
}

// Returns the intersection of a bucket's elements [offset, offset + elements) and `held`; empty if
// begin >= end.
spec::Range common(const spec::Range& held, int64_t offset, int64_t elements) {
  return {std::max(held.begin, offset), std::min(held.end, offset + elements)};
}

}  // namespace

StateAccess::StateAccess(const Parts& parts)
    : model_(parts.model),
      plan_(parts.plan),
      compute_(parts.compute),
      groups_(parts.groups),
      tensor_(parts.tensor),
      experts_(parts.experts),
      pipe_(parts.pipe),
      buckets_(parts.buckets),
      state_(parts.state),
      codes_(parts.codes),
      step_state_(parts.step_state) {}

void StateAccess::init_weights(uint64_t seed) {
  for (int b = 0; b < buckets_.size(); ++b) {
    const Bucket& bucket = buckets_[b];
    const device::Tensor own = plan_.inference ? bucket.own_params() : state_.first_weights(b);
    ops::fill(compute_, {.d = own});  // also the padding, which must stay zero
    for (const spec::BucketEntry& entry : bucket.layout().entries) {
      const spec::Range here = common(bucket.updated(), entry.offset, entry.elements);
      if (here.begin >= here.end) continue;
      const spec::Param& param = bucket.specs()[static_cast<size_t>(entry.param)];
      init_param(compute_, param, seed,
                 spec::pieces(param.shard, plan_.mesh, groups_.coord(),
                              {here.begin - entry.offset, here.end - entry.offset}),
                 own.slice_rows(here.begin - bucket.updated().begin, here.end - here.begin));
    }
    if (!plan_.inference) state_.take_first_weights(b);
    if (!plan_.inference) codes_.make(b);
    buckets_.publish(b);
  }
  buckets_.weights_changed();
}

void StateAccess::publish_weights(int bucket) {
  if (!plan_.inference) {
    state_.weights(bucket).publish(compute_);
    codes_.make(bucket);
  }
  buckets_.publish(bucket);
}

std::vector<StateAccess::ParamInfo> StateAccess::parameters() const {
  std::vector<ParamInfo> all;
  for (int layer = 0; layer < static_cast<int>(model_.layers.size()); ++layer) {
    for (const spec::Param& param : spec::params_of(model_, layer)) {
      if (param.tied_copy || param.shard.shape.empty()) continue;
      all.push_back({param.shard.name, param.shard.shape});
    }
  }
  return all;
}

std::vector<float> StateAccess::read_weights(const std::string& name) {
  buckets_.flush_updates();
  const Located at = locate(name);
  return read(at, at.bucket >= 0 ? own_weights(at.bucket) : optim::FlatFloats{});
}

void StateAccess::write_weights(const std::string& name, std::span<const float> values) {
  if (write_input(name, values)) return;
  buckets_.flush_updates();
  const Located at = locate(name);
  const spec::ShardSpec& shard = at.param.shard;
  expect_elements(name, shard, values);
  buckets_.weights_changed();
  if (at.bucket < 0) return;
  buckets_.before_change(at.bucket);
  const spec::Range& held = buckets_[at.bucket].updated();
  const spec::Range here = common(held, at.offset, at.elements);
  if (here.begin < here.end) {
    const int64_t count = here.end - here.begin;
    std::vector<float> own(static_cast<size_t>(count));  // padding stays zero
    for_each_row(shard,
                 spec::pieces(shard, plan_.mesh, groups_.coord(),
                              {here.begin - at.offset, here.end - at.offset}),
                 [&](int64_t whole, int64_t mine, int64_t n) {
                   std::copy_n(values.begin() + whole, n, own.begin() + mine);
                 });
    upload_floats(compute_, own_weights(at.bucket).slice(here.begin - held.begin, count), own);
  }
  publish_weights(at.bucket);
  groups_.before_compute();
  compute_.synchronize();
}

bool StateAccess::write_input(const std::string& name, std::span<const float> values) {
  for (int layer = 0; layer < static_cast<int>(model_.layers.size()); ++layer) {
    size_t own = 0;
    for (const spec::StateTensor& tensor :
         spec::state_of(model_, layer, plan_.optimizer, plan_.recipe)) {
      if (!tensor.is_own()) continue;
      const size_t index = own++;
      if (!tensor.is_input || name != spec::saved_name(tensor, spec::name_of_layer(model_, layer)))
        continue;
      expect_elements(name, tensor.shard, values);
      if (spec::rank_of_layer(plan_, layer) != pipe_.rank()) return true;
      const device::Tensor to = state_.own(layer)[index];
      std::vector<float> part(static_cast<size_t>(to.elements()));
      for_each_row(tensor.shard,
                   spec::pieces(tensor.shard, plan_.mesh, groups_.coord(), {0, to.elements()}),
                   [&](int64_t whole, int64_t held, int64_t n) {
                     std::copy_n(values.begin() + whole, n, part.begin() + held);
                   });
      upload_floats(compute_, {to}, part);
      return true;
    }
  }
  return false;
}

std::vector<float> StateAccess::read_grads(const std::string& name) {
  TRIREME_CHECK(!plan_.inference, "gradients under an inference plan");
  buckets_.flush_updates();
  const Located at = locate(name);
  if (at.bucket < 0) return read(at, {});
  buckets_.complete_grads(at.bucket);
  return read(at, {buckets_[at.bucket].own_grads()});
}

std::string StateAccess::weights_sha256() {
  base::Sha256 sha;
  for (const ParamInfo& param : parameters()) {
    const std::vector<float> values = read_weights(param.name);
    sha.update(std::as_bytes(std::span(values)));
  }
  return sha.hex();
}

std::vector<float> StateAccess::read(const Located& at, const optim::FlatFloats& own) {
  std::vector<float> values;
  if (at.bucket >= 0) {
    const bool is_whole = own.values.elements() == buckets_[at.bucket].layout().elements;
    if (is_whole) {
      groups_.before_compute();
      values = assemble(at.param, download_floats(compute_, own.slice(at.offset, at.elements)));
    } else {
      const std::vector<float> whole = buckets_.read_whole(at.bucket, own);
      values = assemble(at.param, std::span(whole).subspan(static_cast<size_t>(at.offset),
                                                           static_cast<size_t>(at.elements)));
    }
  }
  return pipe_.share(values, elements_of(at.param.shard), at.pp_rank);
}

std::vector<float> StateAccess::assemble(const spec::Param& param, std::span<const float> own) {
  const bool is_expert = param.view == spec::ParamView::expert;
  const bool is_cut = !param.shard.cuts.empty();
  const int ranks = !is_cut ? 1 : is_expert ? experts_.ranks() : tensor_.ranks();
  std::vector<float> gathered;
  if (ranks > 1) {
    gathered = is_expert ? experts_.gather_for_host(own) : tensor_.gather_for_host(own);
  }
  const std::span<const float> parts = ranks > 1 ? std::span<const float>(gathered) : own;
  const auto part_elements = static_cast<int64_t>(own.size());
  std::vector<float> values(static_cast<size_t>(elements_of(param.shard)));
  for (int r = 0; r < ranks; ++r) {
    spec::Coord coord = groups_.coord();
    if (ranks > 1 && is_expert) coord = experts_.coord_of(r, coord);
    if (ranks > 1 && !is_expert) coord[spec::Axis::tp] = r;
    for_each_row(param.shard, spec::pieces(param.shard, plan_.mesh, coord, {0, part_elements}),
                 [&](int64_t whole, int64_t held, int64_t n) {
                   std::copy_n(parts.begin() + r * part_elements + held, n, values.begin() + whole);
                 });
  }
  return values;
}

StateAccess::Located StateAccess::locate(const std::string& name) const {
  for (int layer = 0; layer < static_cast<int>(model_.layers.size()); ++layer) {
    const std::vector<spec::Param> params = spec::params_of(model_, layer);
    const auto found = std::find_if(params.begin(), params.end(), [&](const spec::Param& param) {
      return param.shard.name == name && !param.tied_copy;
    });
    if (found == params.end()) continue;
    Located at{.pp_rank = spec::rank_of_layer(plan_, layer), .bucket = -1, .param = *found};
    if (at.pp_rank != pipe_.rank()) return at;
    const auto index = static_cast<int>(found - params.begin());
    const spec::Range buckets = buckets_.of_layer(layer);
    for (int64_t b = buckets.begin; b < buckets.end; ++b) {
      at.bucket = static_cast<int>(b);
      for (const spec::BucketEntry& entry : buckets_[at.bucket].layout().entries) {
        if (entry.param != index) continue;
        at.offset = entry.offset;
        at.elements = entry.elements;
        return at;
      }
    }
  }
  throw base::ConfigError(fmt::format("the model has no parameter '{}'", name));
}

optim::FlatFloats StateAccess::own_weights(int bucket) const {
  return plan_.inference ? optim::FlatFloats{buckets_[bucket].own_params()}
                         : state_.weights(bucket).floats();
}

void StateAccess::flush_updates() {
  TRIREME_CHECK(!plan_.inference, "state under an inference plan");
  buckets_.flush_updates();
}

std::vector<StateAccess::StateRange> StateAccess::state() {
  flush_updates();
  std::vector<StateRange> all;
  for (int b = 0; b < buckets_.size(); ++b) {
    for (const TrainState::Part& part : state_.parts(b)) {
      all.push_back({buckets_.key(b).layer, buckets_.key(b).view, buckets_.key(b).is_matrix,
                     part.tensor, part.range, part.floats});
    }
  }
  return all;
}

std::vector<float> StateAccess::read_state(const StateRange& range) {
  return download_floats(compute_, range.floats);
}

void StateAccess::write_state(const StateRange& range, std::span<const float> values,
                              UploadRing* ring) {
  // With split fp32 weights this writes parameters, which another rank may still be reading.
  const spec::Range buckets = buckets_.of_layer(range.layer);
  for (int64_t b = buckets.begin; b < buckets.end; ++b) buckets_.before_change(static_cast<int>(b));
  if (ring != nullptr) {
    ring->upload(range.floats, values);
  } else {
    upload_floats(compute_, range.floats, values);
  }
}

void StateAccess::state_changed() {
  for (int b = 0; b < buckets_.size(); ++b) {
    buckets_.before_change(b);
    publish_weights(b);
  }
  buckets_.weights_changed();
}

kernels::StepState StateAccess::step_state() {
  kernels::StepState state{};
  compute_.download(std::as_writable_bytes(std::span(&state, 1)), step_state_);
  compute_.synchronize();
  return state;
}

void StateAccess::set_step_state(const kernels::StepState& state) {
  compute_.upload(step_state_, std::as_bytes(std::span(&state, 1)));
  compute_.synchronize();
}

}  // namespace trireme::engine
