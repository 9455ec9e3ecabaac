// SPDX-License-Identifier: Apache-2.0
#include "train/weights/upcycle.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/rng.h"
#include "ckpt/hf/hf_folder.h"
#include "ckpt/hf/hf_names.h"
#include "train/weights/import_weights.h"

namespace trireme::train {
namespace {

constexpr int64_t window_elements = int64_t{8} << 20;

// "blocks.3.experts.down.weight" is copied from "blocks.3.down.weight".
std::string dense_name(const std::string& name) {
  constexpr std::string_view experts = "experts.";
  const size_t at = name.find(experts);
  return at == std::string::npos ? name : std::string(name).erase(at, experts.size());
}

bool is_router(const std::string& name) { return name.ends_with(".router.weight"); }

class ExpertCopies {
 public:
  ExpertCopies(const std::filesystem::path& weights, const Upcycling& how)
      : where_(weights.string()), how_(how), folder_(weights, how.dense) {
    for (const ckpt::HfParam& param : folder_.params()) dense_[param.name] = &param;
  }

  void read(const ckpt::WritePart& write) const {
    std::vector<float> values;
    for (const ckpt::HfParam& param : ckpt::hf_params(how_.moe)) {
      const int64_t columns = param.columns();
      const int64_t rows_at_once = std::max<int64_t>(1, window_elements / columns);
      for (int64_t first = 0, last = 0; first < param.rows(); first = last) {
        last = std::min(first + rows_at_once, param.matrix_end(first));
        values.resize(static_cast<size_t>((last - first) * columns));
        fill(param, {first, last}, values);
        write(param.name, first * columns, values);
      }
    }
  }

 private:
  void fill(const ckpt::HfParam& param, spec::Range rows, std::vector<float>& values) const {
    const auto first = static_cast<uint64_t>(rows.begin * param.columns());
    if (is_router(param.name)) {
      const base::RngKey key = base::rng_key(how_.seed, param.name);
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = base::rng_normal(key, first + i, how_.moe.init_std);
      }
      return;
    }
    const ckpt::HfParam& from = *dense_.at(dense_name(param.name));
    // Experts repeat the rows of the dense matrix.
    const int64_t height = from.rows(), begin = rows.begin % height;
    folder_.read(from.name, from.box({begin, begin + rows.end - rows.begin}), values);
    if (!std::ranges::all_of(values, [](float value) { return std::isfinite(value); })) {
      throw base::IoError(fmt::format(
          "{}: parameter '{}' has values that are not finite: weights of a run that has diverged, "
          "or a damaged file; nothing can be trained from them",
          where_, from.name));
    }
    if (param.shape.size() < 3 || how_.noise == 0) return;
    const base::RngKey key = base::rng_key(how_.seed, param.name + "/noise");
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] += base::rng_normal(key, first + i, static_cast<float>(how_.noise));
    }
  }

  std::string where_;
  const Upcycling& how_;
  ckpt::HfFolder folder_;
  std::map<std::string, const ckpt::HfParam*> dense_;
};

}  // namespace

void check_upcycling(const Upcycling& how) {
  const spec::ModelDims &a = how.dense, &b = how.moe;
  if (a.moe) {
    throw base::ConfigError(
        fmt::format("upcycling '{}': it has experts already; give the weights "
                    "of a dense model",
                    a.name));
  }
  if (!b.moe) {
    throw base::ConfigError(fmt::format(
        "upcycling to '{}': it has no experts; give a --model with a section [moe]", b.name));
  }
  std::string problems;
  const auto demand = [&problems](bool holds, const std::string& problem) {
    if (!holds) problems += "\n  " + problem;
  };
  const auto same = [&](const char* what, auto dense, auto moe) {
    demand(dense == moe, fmt::format("{} = {}: the dense model has {}", what, moe, dense));
  };
  same("layers", a.layers, b.layers);
  same("hidden", a.hidden, b.hidden);
  same("heads", a.heads, b.heads);
  const spec::BlockSpec dense = spec::typical_block(spec::make_model(a));
  const spec::BlockSpec moe = spec::typical_block(spec::make_model(b));
  same("kv_heads", dense.kv_heads, moe.kv_heads);
  same("head_dim", dense.head_dim, moe.head_dim);
  same("vocab", a.vocab, b.vocab);
  same("tied_head", a.tied_head, b.tied_head);
  same("norm_eps", a.norm_eps, b.norm_eps);
  same("qkv_bias", a.qkv_bias, b.qkv_bias);
  same("qk_norm", a.qk_norm, b.qk_norm);
  same("qk_norm_whole", a.qk_norm_whole, b.qk_norm_whole);
  if (a.qk_norm) same("qk_norm_eps", a.qk_norm_eps, b.qk_norm_eps);
  same("clip_qkv", a.clip_qkv, b.clip_qkv);
  same("rope_theta", a.rope.theta, b.rope.theta);
  demand(a.rope.scaling == b.rope.scaling, "rope_scaling: differs from that of the dense model");
  demand(
      b.moe->ffn == a.ffn,
      fmt::format("expert_ffn = {}: every expert is a copy of the dense feed-forward, so it must "
                  "be {}",
                  b.moe->ffn, a.ffn));
  if (spec::expert_blocks(b) < b.layers) same("ffn", a.ffn, b.ffn);
  demand(b.moe->shared_ffn == 0,
         fmt::format("shared_ffn = {}: a dense model has no weights for shared experts; use 0",
                     b.moe->shared_ffn));
  demand(how.noise >= 0 && how.noise <= 1,
         fmt::format("noise = {}: must be from 0 to 1", how.noise));
  if (problems.empty()) return;
  throw base::ConfigError(
      fmt::format("'{}' cannot be upcycled to '{}':{}", a.name, b.name, problems));
}

std::filesystem::path upcycle_weights(ckpt::Disk& disk, const std::filesystem::path& weights,
                                      const Upcycling& how, const std::filesystem::path& root,
                                      const std::function<void(int64_t bytes)>& progress) {
  check_upcycling(how);
  return import_parts(
      disk,
      {.weights = weights,
       .dims = how.moe,
       .check = [&] { ckpt::expect_hf(weights, how.dense); },
       .read = [&](const ckpt::WritePart& write) { ExpertCopies(weights, how).read(write); }},
      root, progress);
}

}  // namespace trireme::train
