// SPDX-License-Identifier: Apache-2.0
// trireme calibrate: measures the machine that it runs on and writes its file.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "base/text/json.h"
#include "cli/bench/bench_gpu_text.h"
#include "cli/shell/device_options.h"
#include "cli/shell/environment.h"
#include "cli/shell/progress.h"
#include "cli/verbs.h"
#include "config/files/machine_file.h"
#include "device/accelerator.h"
#include "device/host_cores.h"
#include "plan/calibrate/measurement_noise.h"
#include "plan/price/price.h"
#include "plan/stack.h"
#include "train/measure/operation_times.h"
#include "train/measure/reference_steps.h"
#include "train/report/peaks.h"

namespace trireme::cli {
namespace {

using base::Json;
using spec::Machine;

constexpr const char* measured_here = "measured by trireme calibrate";

// Peaks that nobody states are fitted: from this beginning, and then so that products reach all of
// them.
struct Peaks {
  bool flops_are_stated = false, bandwidth_is_stated = false;
};

// Links, and what else a processor alone cannot say, from another machine with its sources.
void take_from(const Machine& like, Machine& m) {
  m.domain = like.domain;
  m.network = like.network;
  m.residuals.collective = like.residuals.collective;
  const spec::Processor& from = like.processor;
  spec::Processor& to = m.processor;
  to.fp8_flops = from.fp8_flops;
  to.fp4_flops = from.fp4_flops;
  to.fp8_reach = from.fp8_reach;
  to.fp4_reach = from.fp4_reach;
  to.host_bytes_per_second = from.host_bytes_per_second;
  to.reserved_bytes = from.reserved_bytes;
  to.flash2_factor = from.flash2_factor;
  to.attention_fixed_order = from.attention_fixed_order;
  const std::string whole = fmt::format("{} (of {})", like.source, like.name);
  for (const char* key : {"processor.fp8_tflops",
                          "processor.fp4_tflops",
                          "processor.fp8_reach",
                          "processor.fp4_reach",
                          "processor.host_gigabytes_per_second",
                          "processor.reserved_gigabytes",
                          "processor.flash2_factor",
                          "processor.attention_fixed_order",
                          "domain.size",
                          "domain.link_gigabytes_per_second",
                          "domain.latency_microseconds",
                          "domain.reach",
                          "domain.in_switch_reduction",
                          "network.link_gigabytes_per_second",
                          "network.latency_microseconds",
                          "network.reach",
                          "network.oversubscription",
                          "network.nodes_below_switch",
                          "network.in_network_reduction",
                          "residuals.collective"}) {
    const auto own = like.sources.find(key);
    if (own != like.sources.end()) {
      m.sources[key] = fmt::format("{} (of {})", own->second, like.name);
    } else if (!like.source.empty()) {
      m.sources[key] = whole;
    }
  }
}

double fastest_product(const plan::Times& times) {
  double best = 0;
  for (const plan::TimedProduct& row : times.products) {
    const auto& p = row.product;
    best = std::max(best, 2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) *
                              static_cast<double>(p.k) / row.seconds);
  }
  return best;
}

double fastest_stream(const plan::Times& times) {
  double best = 0;
  for (const plan::TimedStream& row : times.streams) best = std::max(best, row.bytes / row.seconds);
  return best;
}

Peaks set_peaks(train::Platform& platform, const plan::Times& times, Machine& m) {
  const auto stated = train::datasheet_flops(platform.hardware, base::DType::bf16);
  const auto stated_fp32 = train::datasheet_flops(platform.hardware, base::DType::f32);
  const auto bandwidth = train::datasheet_bandwidth(platform.hardware);
  const Peaks peaks{.flops_are_stated = stated.has_value(),
                    .bandwidth_is_stated = bandwidth.has_value()};
  spec::Processor& p = m.processor;
  // Far enough above what was reached that the fit is not held back by it.
  constexpr double above = 2;
  p.bf16_flops = stated ? stated->per_second : above * fastest_product(times);
  p.bytes_per_second = bandwidth ? bandwidth->per_second : above * fastest_stream(times);
  if (stated) m.sources["processor.bf16_tflops"] = stated->source;
  if (bandwidth) m.sources["processor.gigabytes_per_second"] = bandwidth->source;
  if (!platform.is_gpu()) {
    p.fp32_flops = p.bf16_flops;
    m.sources["processor.bf16_tflops"] = "that of fp32, in which the CPU's kernels compute bf16";
  } else if (stated_fp32) {
    p.fp32_flops = stated_fp32->per_second;
    m.sources["processor.fp32_tflops"] = stated_fp32->source;
  } else {
    p.fp32_flops = train::measure_flops(platform, base::DType::f32).per_second;
  }
  return peaks;
}

// A peak that nobody states is what products, or streams, tend to.
void settle_peaks(const Peaks& peaks, bool is_gpu, Machine& m) {
  spec::Processor& p = m.processor;
  if (!peaks.flops_are_stated) {
    p.bf16_flops *= p.gemm_reach;
    if (!is_gpu) p.fp32_flops = p.bf16_flops;
    p.attention_forward = std::min(1.0, p.attention_forward / p.gemm_reach);
    p.attention_backward = std::min(1.0, p.attention_backward / p.gemm_reach);
    p.gemm_reach = 1;
  }
  if (!peaks.bandwidth_is_stated) {
    p.bytes_per_second *= p.memory_reach;
    p.memory_reach = 1;
  }
}

Machine measure(const Args& args, train::Platform& platform, const std::optional<Machine>& like,
                plan::Times& times) {
  const bool is_quick = args.flag("--quick");
  const int threads = train::thread_count(threads_asked(args.integer("--threads")));
  const int ranks = platform.is_gpu() ? 1 : std::max(1, device::host_cores().count() / threads);
  Machine m;
  const std::filesystem::path out = args.text("--out");
  m.name = out.empty() ? "this-machine" : out.stem().string();
  m.source = fmt::format("{} on {}", measured_here, platform.hardware);
  if (platform.is_gpu()) m.source += ", determinism " + args.text("--determinism");
  m.processor.name = platform.hardware;
  m.processor.units = threads;
  m.domain.size = ranks;
  if (like) take_from(*like, m);
  if (platform.is_gpu()) {
    m.processor.memory_bytes = static_cast<double>(platform.memory_bytes);
    const device::GpuStatus status = device::gpu_status();
    m.processor.units = status.gpus.at(static_cast<size_t>(args.integer("--gpu"))).multiprocessors;
  } else {
    m.processor.memory_bytes = static_cast<double>(sysconf(_SC_PHYS_PAGES)) *
                               static_cast<double>(sysconf(_SC_PAGE_SIZE)) / ranks;
    m.sources["processor.memory_gigabytes"] =
        fmt::format("of the whole machine, divided by {} ranks", ranks);
  }

  int64_t count = 0;
  std::optional<Progress> progress;
  train::OperationTimer timer(
      platform, {.is_quick = is_quick,
                 .measured = [&](std::string_view what) { progress->update(++count, what); }});
  progress.emplace("calibrate", "operations", timer.rows());
  timer.add_all(times);
  if (ranks > 1) {
    times.collectives = train::thread_all_reduces(std::min(ranks, 8), threads, is_quick);
    m.domain.link = {.bytes_per_second = 1e9, .latency = 1e-5};
  }
  progress->finish();
  const Peaks peaks = set_peaks(platform, times, m);
  m = plan::fit_machine(m, times);
  settle_peaks(peaks, platform.is_gpu(), m);
  return m;
}

// Whole steps say what the sum of their operations leaves out. Returns what was wrong with the
// measurement; empty: nothing.
std::string fit_steps(const config::System& system, bool is_quick, Machine& m) {
  Progress progress("calibrate", "steps", 2);
  int64_t count = 0;
  const std::vector<train::ReferenceStep> steps = train::reference_steps(
      system, is_quick, [&](std::string_view what) { progress.update(++count, what); });
  progress.finish();
  const auto ratios = [&] {
    std::vector<double> all;
    for (const train::ReferenceStep& step : steps) {
      all.push_back(step.seconds /
                    plan::Pricer(step.job, m, plan::trireme_stack()).price(step.layout).seconds);
    }
    return all;
  };
  double sum = 0;
  for (const double ratio : ratios()) sum += std::log(ratio);
  m.step_factor = std::exp(sum / static_cast<double>(steps.size()));
  for (const double ratio : ratios()) {
    m.residuals.step += std::abs(ratio - 1) / static_cast<double>(steps.size());
  }
  // Other models and layouts are predicted less well than those.
  m.time_error = std::max(0.05, 2 * m.residuals.step);
  return plan::settle_noise(m);
}

Json json_of(const Machine& m, const plan::Times& times) {
  const auto kind = [](size_t rows, double error) {
    return Json{{"rows", rows}, {"mean_abs_error", error}};
  };
  return {{"products", kind(times.products.size(), m.residuals.gemm)},
          {"attention", kind(times.attention.size(), m.residuals.attention)},
          {"streaming", kind(times.streams.size(), m.residuals.streaming)},
          {"collectives", kind(times.collectives.size(), m.residuals.collective)},
          {"steps", kind(2, m.residuals.step)}};
}

// What is written can be read; else the measurement is at fault, and no line of a file.
void check_readable(const std::string& text, const std::string& name) {
  try {
    (void)config::machine_from_text(text, name);
  } catch (const base::ConfigError& error) {
    throw base::Error(
        fmt::format("the times that were measured contradict each other, as on a busy machine; "
                    "measure again when it is idle. Nothing was written. {}",
                    error.what()));
  }
}

int run_calibrate(const Args& args) {
  const std::filesystem::path out = args.text("--out");
  if (!out.empty()) check_machine_file(out, args.flag("--overwrite"));
  std::optional<Machine> like;
  if (args.has("--like")) like = config::machine_from_file(args.text("--like"), machine_folders());
  train::Platform platform = train::make_platform(system_of(args));
  if (like && !platform.is_gpu()) {
    throw base::ConfigError("--like: links of a CPU are measured; it is for --device cuda");
  }
  plan::Times times;
  Machine m = measure(args, platform, like, times);
  const std::string noise = fit_steps(system_of(args), args.flag("--quick"), m);
  if (!noise.empty()) base::log_warning("{}", noise);
  const std::string text = config::machine_text(
      m,
      "Written by trireme calibrate. The keys stand in machines/README.md.\n"
      "[residuals] are mean absolute errors of the times that the constants were fitted to.",
      4);
  check_readable(text, m.name);
  if (!out.empty()) write_machine_file(out, text);
  if (args.wants_json()) {
    Json json = {{"ok", true},
                 {"machine", config::machine_json(m)},
                 {"fitted", json_of(m, times)},
                 {"file", out.string()}};
    if (!noise.empty()) json["warning"] = noise;
    fmt::print("{}\n", json.dump());
    return 0;
  }
  fmt::print("{}", text);
  if (platform.is_gpu() && !like) {
    fmt::print("\nOne GPU: links were not measured. --like NAME takes those of another machine.\n");
  }
  if (!out.empty()) fmt::print("\nwritten to {}\n", out.string());
  return 0;
}

}  // namespace

Verb calibrate_verb() {
  Verb verb{
      .name = "calibrate",
      .summary = "Measure this machine and write the file that plans are priced with",
      .details =
          "Matrix products, attention and what only moves bytes are timed through the kernels\n"
          "that training uses, and on a CPU all-reduces of ranks that are threads. A few\n"
          "constants are fitted to the times; what is left of error is written with them.\n"
          "The machine should be idle. The file is described in machines/README.md.\n\n"
          "Examples:\n"
          "  trireme calibrate --out mine.toml\n"
          "  trireme calibrate --device cpu --threads 1 --quick --json\n"
          "  trireme calibrate --device cuda --like h200 --out mine.toml",
      .options = {{.name = "--out", .help = "Machine file to write; none: it is printed only"},
                  {.name = "--overwrite",
                   .kind = Kind::flag,
                   .help = "Replace the file if it exists"},
                  {.name = "--like",
                   .help = "Machine of which links, network and fp8 are taken: a name or a file"},
                  {.name = "--quick", .kind = Kind::flag, .help = "Few shapes, few repetitions"}},
      .run = run_calibrate};
  for (const Option& option : device_options()) verb.options.push_back(option);
  return verb;
}

}  // namespace trireme::cli
