// SPDX-License-Identifier: Apache-2.0
#include "train/checkpointing/export_loss.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/rng.h"
#include "ckpt/hf/hf_folder.h"
#include "config/files/model_file.h"
#include "engine/step/streamed_loss.h"
#include "train/setup/setup.h"

namespace trireme::train {
namespace {

double mean(const std::vector<float>& losses) {
  return std::accumulate(losses.begin(), losses.end(), 0.0) / static_cast<double>(losses.size());
}

bool is_same(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

}  // namespace

std::vector<int32_t> loss_tokens(const spec::ModelDims& dims) {
  constexpr int64_t max_tokens = 128;
  std::vector<int32_t> tokens(static_cast<size_t>(std::min(max_tokens, dims.max_seq) + 1));
  const base::RngKey key = base::rng_key(0, "tokens of an export's loss");
  for (size_t t = 0; t < tokens.size(); ++t) {
    tokens[t] = static_cast<int32_t>(base::rng_below(key, t, static_cast<uint64_t>(dims.vocab)));
  }
  return tokens;
}

ExportLoss compare_losses(const spec::ModelDims& dims, const ckpt::ReadBox& checkpoint,
                          const std::filesystem::path& exported, base::DType dtype,
                          const std::function<void(int64_t elements)>& progress) {
  ExportLoss result{.tokens = loss_tokens(dims)};
  config::System system;
  system.device = "cpu";
  const Platform platform = make_platform(system);
  const auto losses_of = [&](const spec::ModelDims& model, const engine::ReadWeights& read) {
    return engine::streamed_losses(
        *platform.device, spec::make_model(model), result.tokens,
        [&](const std::string& name, const spec::Piece& box, std::span<float> values) {
          read(name, box, values);
          if (progress) progress(std::ssize(values));
        });
  };

  const std::vector<float> wanted = losses_of(
      dims, [&](const std::string& name, const spec::Piece& box, std::span<float> values) {
        checkpoint(name, box, values);
        if (dtype != base::DType::bf16) return;
        for (float& value : values) value = static_cast<float>(base::Bf16(value));
      });
  const spec::ModelDims read_dims = config::model_from_file((exported / "").string(), {});
  if (loss_tokens(read_dims) != result.tokens) {
    throw base::IoError(fmt::format(
        "{}: the config.json that was just written has {} positions and a vocabulary of {}; the "
        "checkpoint's model has {} and {}; nothing was exported",
        exported.string(), read_dims.max_seq, read_dims.vocab, dims.max_seq, dims.vocab));
  }
  const ckpt::HfFolder folder(exported, read_dims);
  const std::vector<float> found =
      losses_of(read_dims, [&](const std::string& name, const spec::Piece& box,
                               std::span<float> values) { folder.read(name, box, values); });

  result.checkpoint = mean(wanted);
  result.exported = mean(found);
  for (size_t t = 0; t < wanted.size(); ++t) {
    if (is_same(wanted[t], found[t])) continue;
    throw base::IoError(fmt::format(
        "{}: token {} of {} has loss {} under the weights that were just written, and {} under the "
        "checkpoint's (mean {} and {}), although all hashes of tensors are correct: config.json or "
        "the names of tensors are wrong; nothing was exported",
        exported.string(), t, wanted.size(), found[t], wanted[t], result.exported,
        result.checkpoint));
  }
  return result;
}

int64_t compared_elements(const spec::ModelDims& dims) {
  const int64_t tokens = std::ssize(loss_tokens(dims)) - 1;
  const bool has_positions = dims.family == spec::Family::gpt2;
  int64_t once = spec::parameter_count(spec::make_model(dims)) + tokens * dims.hidden;
  if (has_positions) once += (tokens - dims.max_seq) * dims.hidden;
  if (!dims.tied_head) once -= dims.vocab * dims.hidden;
  return 2 * once;
}

}  // namespace trireme::train
