// SPDX-License-Identifier: Apache-2.0
#include "plan/search/feasible.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>

#include "base/text/count_text.h"

namespace trireme::plan {
namespace {

using Values = std::vector<int64_t>;

bool is_described(const spec::Processor& p, Precision precision) {
  switch (precision) {
    case Precision::fp32:
      return p.fp32_flops > 0;
    case Precision::bf16:
      return p.bf16_flops > 0;
    case Precision::fp16:
      return p.bf16_flops > 0;
    case Precision::fp8:
    case Precision::fp8_block:
    case Precision::fp8_delayed:
      return p.fp8_flops > 0;
    case Precision::fp4:
      return p.fp4_flops > 0;
    default:
      return false;
  }
}

// Returns the format whose peak a precision needs.
std::string_view peak_name(Precision precision) {
  if (spec::is_fp8(precision)) return "fp8";
  return precision == Precision::fp16 ? "bf16" : name_of(precision);
}

Values divisors(int64_t number, int64_t max) {
  Values all;
  for (int64_t d = 1; d <= std::min(number, max); ++d) {
    if (number % d == 0) all.push_back(d);
  }
  return all;
}

// Returns the values that are in `limit`; an empty limit allows all.
Values allowed(const Values& values, const std::vector<int>& limit) {
  Values some;
  for (const int64_t value : values) {
    if (limit.empty() || std::ranges::find(limit, value) != limit.end()) some.push_back(value);
  }
  return some;
}

// Returns the multiple of one of the steps that is nearest to the batch; the smaller of two.
int64_t nearest_batch(int64_t batch, const Values& steps) {
  int64_t best = 0;
  for (const int64_t step : steps) {
    for (const int64_t near : {batch / step * step, (batch / step + 1) * step}) {
      const int64_t gap = std::abs(near - batch), best_gap = std::abs(best - batch);
      const bool is_nearer = gap < best_gap || (gap == best_gap && near < best);
      if (near > 0 && (best == 0 || is_nearer)) best = near;
    }
  }
  return best;
}

// Degrees that a job and the limits of a search leave over.
struct Degrees {
  Values tps, pps, dps;  // pps: with the allowed tps; dps: with the allowed tp, pp and cp
};

Degrees degrees_of(const Job& job, const SearchOptions& options, const Values& allowed_tps,
                   int64_t max_pp) {
  Degrees degrees;
  for (const int64_t tp : allowed_tps) {
    const int64_t rest = options.gpus / tp;
    for (const int64_t pp : divisors(rest, max_pp)) {
      degrees.pps.push_back(pp);
      if (allowed({pp}, options.space.pp).empty()) continue;
      for (const int64_t cp : divisors(rest / pp, job.seq_len)) {
        if (!allowed({cp}, options.space.cp).empty()) degrees.dps.push_back(rest / pp / cp);
      }
    }
  }
  std::ranges::sort(degrees.pps);
  degrees.pps.erase(std::unique(degrees.pps.begin(), degrees.pps.end()), degrees.pps.end());
  return degrees;
}

// Returns dp x micro-batch, which must divide the batch, for every allowed combination.
Values batch_steps(const Values& dps, const std::vector<int64_t>& micro_batches) {
  Values steps;
  for (const int64_t dp : dps) {
    if (micro_batches.empty()) steps.push_back(dp);
    for (const int64_t micro : micro_batches) steps.push_back(dp * micro);
  }
  return steps;
}

}  // namespace

std::string missing_in_machine(const spec::Machine& machine, int64_t gpus, Precision precision) {
  if (!is_described(machine.processor, precision)) {
    return fmt::format(
        "{}: the machine file of {} has no processor.{}_tflops; add it, or use "
        "another precision",
        name_of(precision), machine.name, peak_name(precision));
  }
  if (gpus > machine.domain.size && machine.network.link.bytes_per_second <= 0) {
    return fmt::format(
        "{} ranks: {} has {} in a domain, and its machine file has no [network] between domains; "
        "use at most {} ranks, or a machine file with that section (machines/README.md)",
        gpus, machine.name, machine.domain.size, machine.domain.size);
  }
  return {};
}

std::string why_empty(const Job& job, const SearchOptions& options) {
  const int64_t n = options.gpus;
  const auto& block = spec::typical_block(job.model);
  const int64_t layers = job.model.blocks() + 2;
  Values tps;
  for (const int64_t d : divisors(n, block.heads)) {
    if (block.heads % d == 0) tps.push_back(d);
  }
  const Values some_tps = allowed(tps, options.space.tp);
  if (some_tps.empty()) {
    return fmt::format("tp must divide {} and {} heads: {} are allowed, found {}",
                       base::count_text(n, "GPU"), block.heads, fmt::join(tps, ", "),
                       fmt::join(options.space.tp, ", "));
  }
  const Degrees degrees = degrees_of(job, options, some_tps, layers);
  if (degrees.dps.empty()) {
    return fmt::format(
        "tp x pp x cp must divide {} GPUs, and pp must be at most the {} layers; with tp {} pp "
        "may be {}",
        n, layers, fmt::join(some_tps, " or "), fmt::join(degrees.pps, ", "));
  }
  if (const spec::MoeSpec* moe = spec::moe_of(job.model); moe != nullptr) {
    Values eps;
    for (const int64_t ep : divisors(moe->router.experts, n)) {
      if (n % ep == 0) eps.push_back(ep);
    }
    if (allowed(eps, options.space.ep).empty()) {
      return fmt::format("ep must divide {} and {} experts: {} are allowed, found {}",
                         base::count_text(n, "GPU"), moe->router.experts, fmt::join(eps, ", "),
                         fmt::join(options.space.ep, ", "));
    }
  }
  const Values steps = batch_steps(degrees.dps, options.space.micro_batch);
  if (const int64_t near = nearest_batch(job.global_batch, steps); near != job.global_batch) {
    return fmt::format(
        "no allowed dp x micro-batch divides the global batch of {}; nearest batch: {}",
        job.global_batch, near);
  }
  return "the limits on pp, ep, schedule, chunks, ZeRO, micro-batch and recompute exclude each "
         "other; remove one";
}

}  // namespace trireme::plan
