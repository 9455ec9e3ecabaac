// SPDX-License-Identifier: Apache-2.0
// trireme doctor: reports what this machine and this build provide.
#include <unistd.h>

#include <filesystem>
#include <utility>
#include <vector>

#include "base/text/json.h"
#include "cli/shell/build_info.h"
#include "cli/shell/device_options.h"
#include "cli/shell/environment.h"
#include "cli/verbs.h"
#include "comm/gloo.h"
#include "comm/nccl.h"
#include "config/files/model_file.h"
#include "device/accelerator.h"
#include "device/gpu/architectures.h"
#include "device/host_cores.h"
#include "obs/terminal/number_text.h"
#include "train/report/peaks.h"
#include "train/setup/setup.h"

namespace trireme::cli {
namespace {

std::string cuda_text(int cuda_version) {
  if (cuda_version == 0) return "none";
  return fmt::format("{}.{}", cuda_version / 1000, cuda_version % 1000 / 10);
}

// The libraries that GPUs need, in the order in which they are loaded.
std::vector<base::LibraryReport> all_libraries() {
  std::vector<base::LibraryReport> all = device::gpu_libraries();
  for (base::LibraryReport& library : comm::nccl_libraries()) all.push_back(std::move(library));
  return all;
}

base::Json libraries_json() {
  base::Json out = base::Json::array();
  for (const base::LibraryReport& library : all_libraries()) {
    out.push_back({{"name", library.name},
                   {"file", library.file},
                   {"loaded", library.problem.empty()},
                   {"path", library.path},
                   {"version", library.version},
                   {"problem", library.problem}});
  }
  return out;
}

base::Json gpu_json(const device::GpuStatus& status) {
  base::Json gpus = base::Json::array();
  for (const device::GpuInfo& gpu : status.gpus) {
    gpus.push_back({{"index", gpu.index},
                    {"name", gpu.name},
                    {"compute_capability", fmt::format("{}.{}", gpu.major, gpu.minor)},
                    {"multiprocessors", gpu.multiprocessors},
                    {"memory_bytes", gpu.total_bytes},
                    {"memory_free_bytes", gpu.free_bytes},
                    {"usable", gpu.is_usable},
                    {"problem", gpu.problem}});
  }
  return {{"in_build", status.in_build},
          {"built_for", status.built_for},
          {"driver", cuda_text(status.driver_version)},
          {"runtime", cuda_text(status.runtime_version)},
          {"libraries", libraries_json()},
          {"gpus", gpus}};
}

void print_gpus(const device::GpuStatus& status) {
  if (status.problem.empty()) {
    fmt::print("device cuda    yes\n");
  } else {
    fmt::print("device cuda    no: {}\n", status.problem);
  }
  if (!status.in_build) return;
  fmt::print("cuda           driver for CUDA {}, built with CUDA {} for {}\n",
             cuda_text(status.driver_version), cuda_text(status.runtime_version),
             device::architectures_text(status.built_for));
  for (const base::LibraryReport& library : all_libraries()) {
    fmt::print("library        {}\n",
               library.problem.empty()
                   ? fmt::format("{} {}: {}", library.name, library.version, library.path)
                   : fmt::format("{}: no: {}", library.name, library.problem));
  }
  for (const device::GpuInfo& gpu : status.gpus) {
    fmt::print("gpu {:<11}{}, compute capability {}.{}, {} multiprocessors", gpu.index, gpu.name,
               gpu.major, gpu.minor, gpu.multiprocessors);
    if (gpu.is_usable) {
      fmt::print(", {} free of {}\n", obs::bytes_text(gpu.free_bytes),
                 obs::bytes_text(gpu.total_bytes));
    } else {
      fmt::print("\n               not usable: {}\n", gpu.problem);
    }
  }
}

// Measured peaks of one device.
base::Json measured_json(const config::System& system) {
  train::Platform platform = train::make_platform(system, default_cache_folder());
  base::Json out = {{"device", platform.hardware}};
  for (const base::DType dtype : {base::DType::f32, base::DType::bf16}) {
    if (!platform.is_gpu() && dtype != base::DType::f32) continue;
    const train::Peak peak = train::measure_flops(platform, dtype);
    out[fmt::format("{}_tflops", base::name_of(dtype))] = peak.per_second / 1e12;
  }
  out["copy_tb_per_second"] = train::measure_bandwidth(platform).per_second / 1e12;
  return out;
}

int run_doctor(const Args& args) {
  const device::HostCores cores = device::host_cores();
  const int64_t omp_threads = threads_asked(0);
  const int64_t memory = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
  std::error_code error;
  const auto disk = std::filesystem::space(".", error);
  const std::vector<std::string> models = config::model_names(model_folders());
  const device::GpuStatus status = device::gpu_status();
  const bool has_gpu = status.problem.empty();
  base::Json measured = base::Json::array();
  if (args.flag("--measure")) {
    measured.push_back(measured_json({.device = "cpu"}));
    for (const device::GpuInfo& gpu : status.gpus) {
      if (gpu.is_usable) measured.push_back(measured_json({.device = "cuda", .gpu = gpu.index}));
    }
  }
  base::Json cuda = {{"name", "cuda"}, {"available", has_gpu}};
  if (!has_gpu) cuda["reason"] = status.problem;
  const std::string gloo = comm::gloo_status(), nccl = comm::nccl_status();
  base::Json out = {{"ok", true},
                    {"program", to_json(build_info())},
                    {"cores", cores.count()},
                    {"cores_of_machine", cores.machine},
                    {"cores_source", cores.source()},
                    {"threads", train::thread_count(omp_threads)},
                    {"threads_source", omp_threads > 0 ? "OMP_NUM_THREADS" : "cores"},
                    {"memory_bytes", memory},
                    {"disk_free_bytes", error ? 0 : static_cast<int64_t>(disk.available)},
                    {"devices", {{{"name", "cpu"}, {"available", true}}, cuda}},
                    {"cuda", gpu_json(status)},
                    {"gpu_suite", build_info().gpu_suite},
                    {"ranks",
                     {{{"name", "threads"}, {"available", true}, {"reason", ""}},
                      {{"name", "gloo"}, {"available", gloo.empty()}, {"reason", gloo}},
                      {{"name", "nccl"}, {"available", nccl.empty()}, {"reason", nccl}}}},
                    {"models", models}};
  if (!measured.empty()) {
    out["measured_peak_tflops"] = measured.front()["f32_tflops"];
    out["measured"] = measured;
  }
  if (args.wants_json()) {
    fmt::print("{}\n", out.dump());
    return 0;
  }
  fmt::print("trireme        {} (commit {})\n", build_info().version, build_info().commit);
  fmt::print("cores          {} ({})\n", cores.count(), cores.source());
  if (omp_threads > 0) fmt::print("threads        {} (OMP_NUM_THREADS)\n", omp_threads);
  fmt::print("memory         {:.1f} GiB\ndisk free here {:.1f} GiB\n",
             static_cast<double>(memory) / 0x1p30,
             error ? 0.0 : static_cast<double>(disk.available) / 0x1p30);
  fmt::print("device cpu     yes\n");
  print_gpus(status);
  if (!build_info().gpu_suite.empty()) fmt::print("{}\n", build_info().gpu_suite);
  fmt::print("ranks          threads of one process: yes\n");
  fmt::print("               processes over Gloo (CPUs): {}\n",
             gloo.empty() ? "yes" : "no: " + gloo);
  fmt::print("               processes over NCCL (GPUs): {}\n",
             nccl.empty() ? "yes" : "no: " + nccl);
  fmt::print("models         {}\n",
             models.empty() ? "none found: run from the source folder, or give a path" : "");
  for (const std::string& name : models) fmt::print("  {}\n", name);
  for (const base::Json& one : measured) {
    fmt::print("measured peak  {}: {:.4f} TFLOP/s fp32", one["device"].get<std::string>(),
               one["f32_tflops"].get<double>());
    if (one.contains("bf16_tflops")) {
      fmt::print(", {:.1f} TFLOP/s bf16", one["bf16_tflops"].get<double>());
    }
    fmt::print(" (GEMM), {:.3f} TB/s (copy); for MFU: --system.peak_tflops\n",
               one["copy_tb_per_second"].get<double>());
  }
  return 0;
}

}  // namespace

Verb doctor_verb() {
  return {
      .name = "doctor",
      .summary = "Report what this machine and this build provide",
      .details = "Examples:\n  trireme doctor\n  trireme doctor --measure --json",
      .options = {{.name = "--measure",
                   .kind = Kind::flag,
                   .help = "Also measure matrix products and copies, which takes some seconds"}},
      .run = run_doctor};
}

}  // namespace trireme::cli
