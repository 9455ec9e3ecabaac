// SPDX-License-Identifier: Apache-2.0
// trireme doctor: what this machine and this build have.
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "base/json.h"
#include "cli/verbs.h"
#include "config/model_file.h"
#include "train/throughput.h"

namespace trireme::cli {
namespace {

int run(const Args& args) {
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  const int64_t memory = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
  std::error_code error;
  const auto disk = std::filesystem::space(".", error);
  const std::vector<std::string> models = config::model_names(model_folders());
  const double peak = args.flag("--measure") ? train::measure_peak_flops(cores) : 0;

  base::Json out = {{"ok", true},
                    {"cores", cores},
                    {"memory_bytes", memory},
                    {"disk_free_bytes", error ? 0 : static_cast<int64_t>(disk.available)},
                    {"devices",
                     {{{"name", "cpu"}, {"available", true}},
                      {{"name", "cuda"}, {"available", false}, {"reason", "not in this build"}}}},
                    {"ranks", {{{"name", "one rank"}, {"available", true}}}},
                    {"models", models}};
  if (peak > 0) out["measured_peak_tflops"] = peak / 1e12;
  if (args.wants_json()) {
    fmt::print("{}\n", out.dump());
    return 0;
  }
  fmt::print("cores          {}\nmemory         {:.1f} GiB\ndisk free here {:.1f} GiB\n", cores,
             static_cast<double>(memory) / 0x1p30,
             error ? 0.0 : static_cast<double>(disk.available) / 0x1p30);
  fmt::print("device cpu     yes\ndevice cuda    no (not in this build)\nranks          one\n");
  fmt::print("models         {}\n",
             models.empty() ? "none found: run from the source folder, or give a path" : "");
  for (const std::string& name : models) fmt::print("  {}\n", name);
  if (peak > 0) {
    fmt::print("measured peak  {:.4f} TFLOP/s (fp32 GEMM); for MFU: --system.peak_tflops={:.4f}\n",
               peak / 1e12, peak / 1e12);
  }
  return 0;
}

}  // namespace

Verb doctor_verb() {
  return {.name = "doctor",
          .summary = "What this machine and this build have",
          .details = "Examples:\n  trireme doctor\n  trireme doctor --measure --json",
          .options = {{.name = "--measure",
                       .kind = Kind::flag,
                       .help = "Also measure the peak of matrix products (a second)"}},
          .run = run};
}

}  // namespace trireme::cli
