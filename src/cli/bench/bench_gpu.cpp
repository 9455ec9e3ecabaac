// SPDX-License-Identifier: Apache-2.0
// trireme bench gpu: measures a GPU; prints the figures and writes them to a file.
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "base/text/json.h"
#include "cli/bench/bench_gpu_text.h"
#include "cli/shell/progress.h"
#include "cli/verbs.h"
#include "config/files/model_file.h"
#include "device/accelerator.h"
#include "train/measure/gpu_bench.h"

namespace trireme::cli {
namespace {

using base::Json;

// 13020 -> "13.2".
std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

// "NVIDIA H200" -> "nvidia-h200".
std::string plain_name(const std::string& name) {
  std::string plain;
  for (const char c : name) {
    const bool is_digit = c >= '0' && c <= '9', is_lower = c >= 'a' && c <= 'z';
    if (c >= 'A' && c <= 'Z') {
      plain.push_back(static_cast<char>(c - 'A' + 'a'));
    } else {
      plain.push_back(is_digit || is_lower ? c : '-');
    }
  }
  return plain;
}

Json gpu_json(const device::GpuStatus& status, const device::GpuInfo& gpu) {
  return {{"name", gpu.name},
          {"compute_capability", fmt::format("{}.{}", gpu.major, gpu.minor)},
          {"multiprocessors", gpu.multiprocessors},
          {"memory_bytes", gpu.total_bytes},
          {"driver_cuda", version_text(status.driver_version)},
          {"runtime_cuda", version_text(status.runtime_version)},
          {"libraries", status.libraries}};
}

// Throws ConfigError with the reason if this GPU cannot be used.
const device::GpuInfo& usable(const device::GpuStatus& status, int index) {
  if (!status.problem.empty()) throw base::ConfigError("bench gpu: " + status.problem);
  for (const device::GpuInfo& gpu : status.gpus) {
    if (gpu.index != index) continue;
    if (!gpu.is_usable) throw base::ConfigError("bench gpu: " + gpu.problem);
    return gpu;
  }
  throw base::ConfigError(
      fmt::format("--gpu {}: this machine has {} GPUs, counted from 0", index, status.gpus.size()));
}

int run_bench_gpu(const Args& args) {
  const bool is_quick = args.flag("--quick");
  const device::GpuStatus status = device::gpu_status();
  const device::GpuInfo& gpu = usable(status, args.small_integer("--gpu"));
  const std::filesystem::path out = args.text("--out");
  if (!out.empty()) check_machine_file(out, args.flag("--overwrite"));
  std::vector<spec::ModelSpec> models;
  for (const char* name : {"llama-1b", "llama-8b", "gpt2-124m"}) {
    if (is_quick && !models.empty()) break;
    models.push_back(spec::make_model(config::model_from_file(name, model_folders())));
  }

  // Square products, linears and heads of the models, attention twice, memory, copies, launches.
  Progress progress("bench gpu", "figures", is_quick ? 35 : 117);
  int64_t figures_so_far = 0;
  train::GpuBench::Options options{.index = gpu.index, .is_quick = is_quick};
  options.measured = [&](std::string_view what) { progress.update(++figures_so_far, what); };

  Json figures = {{"format", 1},
                  {"name", out.empty() ? plain_name(gpu.name) : out.stem().string()},
                  {"source", "measured by trireme bench gpu"},
                  {"gpu", gpu_json(status, gpu)}};
  auto bench = std::make_unique<train::GpuBench>(options);
  figures["memory"] = bench->memory();
  figures["launch"] = bench->launches();
  figures["host"] = bench->host_copies();
  figures["gemm"] = bench->gemm(models);
  figures["attention"] = bench->attention(true);
  // The deterministic backward has other kernels, so it needs a new device.
  bench.reset();
  options.deterministic = true;
  bench = std::make_unique<train::GpuBench>(options);
  for (const Json& figure : bench->attention(false)) figures["attention"].push_back(figure);
  bench.reset();
  progress.finish();

  if (!out.empty()) write_machine_file(out, machine_file_text(figures));
  if (args.wants_json()) {
    Json all = {{"ok", true}};
    all.update(figures);
    fmt::print("{}\n", all.dump());
    return 0;
  }
  fmt::print("{}", figures_text(figures));
  if (!out.empty()) fmt::print("\nwritten to {}\n", out.string());
  return 0;
}

}  // namespace

Verb bench_gpu_verb() {
  return {
      .name = "bench gpu",
      .summary = "Measure a GPU: matrix products, attention, memory, copies, launches",
      .details =
          "Times the kernels that training uses, on random numbers. machines/README.md describes\n"
          "the file.\n\nExamples:\n"
          "  trireme bench gpu --quick\n"
          "  trireme bench gpu --out machines/measured/h200.toml --overwrite",
      .options = {{.name = "--out",
                   .help = "File to write the figures to, as machines/measured/NAME.toml"},
                  {.name = "--overwrite",
                   .kind = Kind::flag,
                   .help = "Replace the file of --out if it already exists"},
                  {.name = "--quick",
                   .kind = Kind::flag,
                   .help = "Measure fewer shapes, with fewer repetitions"},
                  {.name = "--gpu",
                   .kind = Kind::integer,
                   .fallback = "0",
                   .help = "Index of the GPU, from 0"}},
      .run = run_bench_gpu};
}

}  // namespace trireme::cli
