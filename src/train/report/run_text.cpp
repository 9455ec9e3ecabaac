// SPDX-License-Identifier: Apache-2.0
#include "train/report/run_text.h"

#include <algorithm>

#include "base/check.h"
#include "obs/terminal/number_text.h"
#include "schedule/lives.h"
#include "spec/parallel/data_parallel.h"
#include "train/setup/fit.h"

namespace trireme::train {
namespace {

std::string tflops(const Peak& peak) {
  return fmt::format("{:g} TFLOP/s ({})", peak.per_second / 1e12, peak.source);
}

// "stages    4 on 2 ranks; rank 0: layers 0-2, 5-6; rank 1: layers 3-4, 7-9"
std::string pipeline_line(const spec::ModelSpec& model, const spec::Plan& plan) {
  constexpr int max_ranks = 8;
  std::string line = fmt::format("stages    {} on {} ranks", plan.stages(), plan.schedule.ranks);
  for (int rank = 0; rank < std::min(plan.schedule.ranks, max_ranks); ++rank) {
    line += fmt::format("; rank {}: layers", rank);
    for (const int stage : schedule::stages_of(plan.schedule, rank)) {
      const spec::LayerRange range = spec::layers_of_stage(model, plan, stage);
      line += stage == schedule::stages_of(plan.schedule, rank).front() ? " " : ", ";
      line += range.first == range.last - 1 ? fmt::format("{}", range.first)
                                            : fmt::format("{}-{}", range.first, range.last - 1);
    }
  }
  return line + (plan.schedule.ranks > max_ranks ? "; ..." : "");
}

// "context   4 ranks share each sequence: gather, zigzag slices, 16,384 of 65,536 tokens each"
std::string context_line(const spec::Plan& plan) {
  const spec::Layout& l = plan.layout;
  std::string text = fmt::format("context   {} ranks share each sequence: {}", l.cp,
                                 spec::name_of(l.context_kind));
  if (l.ulysses > 1 && l.ulysses < l.cp) text += fmt::format(" in groups of {}", l.ulysses);
  if (l.ulysses < l.cp) {
    const spec::ContextSplit split = spec::local_shape_of(plan).context();
    const std::vector<int64_t> pairs = spec::pairs_of_groups(split, spec::equal_offsets(split));
    const double mean = spec::mean_pairs(split);
    text += fmt::format(", {} slices (pairs of query and key, max/mean {:.3f})",
                        spec::name_of(l.context_slices),
                        static_cast<double>(*std::ranges::max_element(pairs)) / mean);
  }
  return text + fmt::format("; {} of {} tokens of a micro-batch each", plan.rank_tokens(),
                            plan.microbatch_tokens());
}

}  // namespace

RunPeaks find_peaks(Platform& platform, const spec::Plan& plan, double given_tflops) {
  const base::DType dtype = plan.recipe.storage;
  RunPeaks peaks;
  peaks.flops = known_flops(given_tflops, platform.hardware, dtype);
  // Three matrices of 128 MiB; a GPU with less to spare is not measured.
  constexpr int64_t needed = int64_t{1} << 30;
  if (platform.is_gpu() && platform.device->available_bytes() > needed) {
    peaks.gemm = measure_flops(platform, dtype);
    if (!peaks.flops) peaks.flops = peaks.gemm;
  }
  return peaks;
}

namespace {

std::string model_line(const spec::ModelSpec& model) {
  std::string text =
      fmt::format("model     {}: {:.2f} M parameters, {} blocks", model.name,
                  static_cast<double>(spec::parameter_count(model)) / 1e6, model.blocks());
  if (const spec::MoeSpec* moe = spec::moe_of(model)) {
    text += fmt::format(", {} of {} experts a token: {:.2f} M active parameters",
                        moe->router.chosen, moe->router.experts,
                        static_cast<double>(spec::active_parameter_count(model)) / 1e6);
  }
  return text;
}

}  // namespace

std::vector<std::string> describe_run(const spec::ModelSpec& model, const spec::Plan& plan,
                                      const Platform& platform, const RunPeaks& peaks) {
  const spec::MemoryTable& memory = plan.predicted.largest();
  const int ranks = spec::data_ranks(plan.mesh);
  const spec::Recompute recompute = *std::max_element(plan.recompute.begin(), plan.recompute.end());
  const auto recomputed = std::count(plan.recompute.begin(), plan.recompute.end(), recompute);
  std::vector<std::string> lines = {
      model_line(model),
      fmt::format("batch     {}{} x {} sequences x {} tokens = {} tokens a step",
                  ranks > 1 ? fmt::format("{} data ranks x ", ranks) : "",
                  plan.schedule.microbatches, plan.layout.micro_batch, plan.seq_len,
                  step_tokens(plan)),
      fmt::format("plan      {}, recompute {}{}, {} predicted{}", plan.recipe.name,
                  spec::name_of(recompute),
                  recomputed < model.blocks() ? fmt::format(" in {} blocks", recomputed) : "",
                  obs::bytes_text(memory.total()),
                  plan.mesh == spec::Sizes{}       ? ""
                  : plan.mesh[spec::Axis::pp] == 1 ? " on every rank"
                                                   : " on the largest rank"),
      fmt::format("device    {}{}", platform.hardware,
                  platform.memory_bytes > 0
                      ? fmt::format(" ({})", obs::bytes_text(platform.memory_bytes))
                      : ""),
      "numerics  " + determinism_text(platform)};
  if (plan.mesh[spec::Axis::cp] > 1) lines.insert(lines.begin() + 3, context_line(plan));
  if (plan.stages() > 1) lines.insert(lines.begin() + 3, pipeline_line(model, plan));
  if (peaks.flops) {
    std::string line = "mfu       (6 N + 12 L h T) x tokens/s / " + tflops(*peaks.flops);
    if (peaks.gemm) line += "; GEMM here: " + tflops(*peaks.gemm);
    lines.push_back(line);
  } else if (platform.is_gpu()) {
    lines.push_back(
        "mfu       not reported: the peak of this GPU is not known; set system.peak_tflops");
  }
  return lines;
}

int64_t step_tokens(const spec::Plan& plan) {
  return spec::data_ranks(plan.mesh) * plan.schedule.microbatches * plan.microbatch_tokens();
}

std::string memory_line(int64_t ledger_bytes, int64_t driver_bytes) {
  const int64_t expected = ledger_bytes + cuda_library_bytes;
  return fmt::format(
      "memory    the driver reports {} used on this GPU by all programs; ledger {} + libraries {} "
      "= {} ({:+.2f} %)",
      obs::bytes_text(driver_bytes), obs::bytes_text(ledger_bytes),
      obs::bytes_text(cuda_library_bytes), obs::bytes_text(expected),
      100.0 * static_cast<double>(driver_bytes - expected) / static_cast<double>(expected));
}

}  // namespace trireme::train
