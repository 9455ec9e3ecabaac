// SPDX-License-Identifier: Apache-2.0
// Engine: weights and gradients by name, and their first values.
#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "base/rng.h"
#include "base/sha256.h"
#include "engine/engine.h"
#include "engine/host_floats.h"
#include "kernels/ops.h"

namespace trireme::engine {
namespace {

namespace ops = kernels::ops;

// Fills the flat stretch `d`, which holds `pieces` of a parameter, as its description says.
void init_param(device::Stream& stream, const spec::Param& param, uint64_t seed,
                const std::vector<spec::Piece>& pieces, device::Tensor d) {
  if (param.init != spec::Init::normal) {
    ops::fill(stream, {.d = d, .value = param.init == spec::Init::ones ? 1.0F : 0.0F});
    return;
  }
  const base::RngKey key = base::rng_key(seed, param.shard.name);
  for (const spec::Piece& piece : pieces) {
    TRIREME_CHECK(piece.lo.size() == 2, "'{}' is drawn but not a matrix", param.shard.name);
    const int64_t rows = piece.hi[0] - piece.lo[0], cols = piece.hi[1] - piece.lo[1];
    const int64_t width = param.shard.shape[1];
    ops::init_normal(stream, {.d = d.slice_rows(piece.local, rows * cols).reshape({rows, cols}),
                              .key = key,
                              .first = static_cast<uint64_t>(piece.lo[0] * width + piece.lo[1]),
                              .global_row_stride = static_cast<uint64_t>(width),
                              .std_dev = param.init_std});
  }
}

// What of a bucket's elements [offset, offset + elements) lies in `held`; empty if begin >= end.
spec::Range common(const spec::Range& held, int64_t offset, int64_t elements) {
  return {std::max(held.begin, offset), std::min(held.end, offset + elements)};
}

}  // namespace

void Engine::init_weights(uint64_t seed) {
  for (int b = 0; b < stage_->buckets().size(); ++b) {
    const Bucket& bucket = stage_->buckets()[b];
    const device::Tensor own = own_weights(b);
    ops::fill(*compute_, {.d = own});  // padding too: it must stay zero
    for (const spec::BucketEntry& entry : bucket.layout().entries) {
      const spec::Range here = common(bucket.updated(), entry.offset, entry.elements);
      if (here.begin >= here.end) continue;
      const spec::Param& param = bucket.specs()[static_cast<size_t>(entry.param)];
      init_param(*compute_, param, seed,
                 spec::pieces(param.shard, plan_.mesh, groups_->coord(),
                              {here.begin - entry.offset, here.end - entry.offset}),
                 own.slice_rows(here.begin - bucket.updated().begin, here.end - here.begin));
    }
    publish_weights(b);
  }
}

void Engine::publish_weights(int bucket) {
  if (optimizer_) optimizer_->publish(*compute_, bucket);
  stage_->buckets().publish(bucket);
}

std::vector<Engine::ParamInfo> Engine::parameters() const {
  std::vector<ParamInfo> all;
  for (const Bucket& bucket : stage_->buckets()) {
    for (const spec::Param& param : bucket.specs()) {
      if (param.tied_copy || param.shard.shape.empty()) continue;
      all.push_back({param.shard.name, param.shard.shape});
    }
  }
  return all;
}

std::vector<float> Engine::read_weights(const std::string& name) {
  const Located at = locate(name);
  return read(at, own_weights(at.bucket));
}

void Engine::write_weights(const std::string& name, std::span<const float> values) {
  const Located at = locate(name);
  if (static_cast<int64_t>(values.size()) != at.elements) {
    throw base::ConfigError(
        fmt::format("'{}' has {} elements, {} were given", name, at.elements, values.size()));
  }
  const spec::Range& held = stage_->buckets()[at.bucket].updated();
  const spec::Range here = common(held, at.offset, at.elements);
  if (here.begin < here.end) {
    const int64_t count = here.end - here.begin;
    upload_floats(
        *compute_, own_weights(at.bucket).slice_rows(here.begin - held.begin, count),
        values.subspan(static_cast<size_t>(here.begin - at.offset), static_cast<size_t>(count)));
  }
  publish_weights(at.bucket);
  groups_->before_compute();
  compute_->synchronize();
}

std::vector<float> Engine::read_grads(const std::string& name) {
  TRIREME_CHECK(!plan_.inference, "gradients under an inference plan");
  const Located at = locate(name);
  return read(at, stage_->buckets()[at.bucket].own_grads());
}

std::string Engine::weights_sha256() {
  base::Sha256 sha;
  for (int b = 0; b < stage_->buckets().size(); ++b) {
    const std::vector<float> whole = stage_->buckets().read_whole(b, own_weights(b));
    for (const spec::Param& param : stage_->buckets()[b].specs()) {
      if (param.tied_copy || param.shard.shape.empty()) continue;
      const Located at = locate(param.shard.name);
      sha.update(std::as_bytes(std::span(whole).subspan(static_cast<size_t>(at.offset),
                                                        static_cast<size_t>(at.elements))));
    }
  }
  return sha.hex();
}

std::vector<float> Engine::read(const Located& at, const device::Tensor& own) {
  const bool is_whole = own.elements() == stage_->buckets()[at.bucket].layout().elements;
  if (is_whole) {
    groups_->before_compute();
    return download_floats(*compute_, own.slice_rows(at.offset, at.elements));
  }
  const std::vector<float> whole = stage_->buckets().read_whole(at.bucket, own);
  return {whole.begin() + at.offset, whole.begin() + at.offset + at.elements};
}

Engine::Located Engine::locate(const std::string& name) const {
  for (int b = 0; b < stage_->buckets().size(); ++b) {
    const Bucket& bucket = stage_->buckets()[b];
    const int param = bucket.find(name);
    if (param < 0) continue;
    for (const spec::BucketEntry& entry : bucket.layout().entries) {
      if (entry.param == param) return {b, param, entry.offset, entry.elements};
    }
  }
  throw base::ConfigError(fmt::format("the model has no parameter '{}'", name));
}

device::Tensor Engine::own_weights(int bucket) const {
  return optimizer_ ? optimizer_->weights(bucket) : stage_->buckets()[bucket].own_params();
}

}  // namespace trireme::engine
