// SPDX-License-Identifier: Apache-2.0
#include "train/generate/loaded_decoder.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "obs/terminal/number_text.h"
#include "obs/terminal/table.h"
#include "train/setup/fit.h"

namespace trireme::train {
namespace {

// A limit that a step of the largest models would take seconds for.
constexpr int64_t max_sequences = 4096;

std::string gib_text(int64_t bytes) {
  return obs::grouped(static_cast<double>(bytes) / 0x1p30, 3) + " GiB";
}

std::string table_of(const spec::DecodeMemory& m, int64_t available_bytes) {
  const std::array<obs::Column, 3> columns = {
      {{"memory", obs::Align::left}, {"bytes"}, {"in GiB"}}};
  std::vector<std::vector<std::string>> cells;
  const auto add = [&cells](const char* name, int64_t bytes) {
    cells.push_back(
        {name, obs::grouped(bytes), obs::grouped(static_cast<double>(bytes) / 0x1p30, 3)});
  };
  add("parameters", m.params);
  add("cache of keys and values", m.cache);
  add("scratch", m.scratch);
  add("batch", m.staging);
  cells.emplace_back();
  add("needed", m.total());
  add("available", available_bytes);
  return obs::table_text(columns, cells);
}

// Returns the changes of one setting that fit, each as small as halving allows.
std::string advice(const spec::ModelSpec& model, const spec::DecodePlan& plan,
                   const spec::Backend& backend, int64_t available_bytes) {
  std::string text;
  const auto try_plan = [&](const spec::DecodePlan& other, const std::string& how) {
    const int64_t bytes = spec::decode_memory(model, other, backend).total();
    if (bytes > available_bytes) return false;
    text += fmt::format("\n  {}\n      needs {}", how, gib_text(bytes));
    return true;
  };
  if (plan.dtype == base::DType::f32) {
    spec::DecodePlan other = plan;
    other.dtype = base::DType::bf16;
    try_plan(other, "--dtype bf16");
  }
  for (spec::DecodePlan other = plan; other.sequences > 1;) {
    other.sequences /= 2;
    if (try_plan(other, fmt::format("--batch {}", other.sequences))) break;
  }
  for (spec::DecodePlan other = plan; other.capacity > 1;) {
    other.capacity /= 2;
    if (try_plan(other, fmt::format("--seq {}", other.capacity))) break;
  }
  if (!text.empty()) return "these changes would fit:" + text;
  return "no change of --batch, --seq or --dtype alone would fit; use several of them, a smaller "
         "model, or a device with more memory";
}

}  // namespace

spec::DecodePlan make_decode_plan(const spec::ModelSpec& model, const DecodeOptions& o) {
  if (o.sequences < 1 || o.sequences > max_sequences) {
    throw base::ConfigError(
        fmt::format("--batch {}: from 1 to {} sequences", o.sequences, max_sequences));
  }
  if (o.seq_len < 0 || o.seq_len > model.max_seq) {
    throw base::ConfigError(fmt::format("--seq {}: from 1 to the model's max_seq of {}; 0: {}",
                                        o.seq_len, model.max_seq, model.max_seq));
  }
  spec::DecodePlan plan;
  plan.dtype = o.dtype == "fp32" ? base::DType::f32 : base::DType::bf16;
  plan.sequences = o.sequences;
  plan.capacity = o.seq_len == 0 ? model.max_seq : o.seq_len;
  plan.prompt_rows = std::min(plan.prompt_rows, plan.capacity);
  // Rows of the cache are numbered by 32-bit integers.
  if (plan.sequences * plan.capacity > INT32_MAX) {
    throw base::ConfigError(
        fmt::format("--batch {} with contexts of {} tokens: more than {} "
                    "cached tokens; use a smaller --batch or --seq",
                    plan.sequences, plan.capacity, INT32_MAX));
  }
  return plan;
}

void check_decoder_fits(const spec::ModelSpec& model, const spec::DecodePlan& plan,
                        const spec::Backend& backend, int64_t available_bytes) {
  const spec::DecodeMemory memory = spec::decode_memory(model, plan, backend);
  if (memory.total() <= available_bytes) return;
  throw base::OutOfMemory(fmt::format(
      "model '{}' with {} of {} tokens does not fit in memory: needs {}, available {} (nothing was "
      "allocated)\n\n{}\n{}",
      model.name, plan.sequences == 1 ? "1 sequence" : fmt::format("{} sequences", plan.sequences),
      plan.capacity, gib_text(memory.total()), gib_text(available_bytes),
      table_of(memory, available_bytes), advice(model, plan, backend, available_bytes)));
}

LoadedDecoder::LoadedDecoder(WeightsSource& weights, const DecodeOptions& o)
    : dims_(weights.dims()) {
  const spec::ModelSpec model = spec::make_model(dims_);
  const spec::DecodePlan plan = make_decode_plan(model, o);
  platform_ = make_platform(o.system);
  int64_t available = platform_.device->available_bytes();
  if (platform_.is_gpu()) {
    available -= cuda_library_bytes - cuda_context_bytes;
  } else {
    available = std::min(available, platform_.host_available_bytes);
  }
  check_decoder_fits(model, plan, platform_.backend, available);
  decoder_ = std::make_unique<engine::Decoder>(*platform_.device, model, plan, platform_.backend);
  weights.read([this](const std::string& name, std::span<const float> values) {
    decoder_->write_weights(name, values);
  });
}

}  // namespace trireme::train
