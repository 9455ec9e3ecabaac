// SPDX-License-Identifier: Apache-2.0
// trireme calibrate: measures the machine that it runs on and writes its file.
#include <filesystem>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "base/text/json.h"
#include "cli/bench/bench_gpu_text.h"
#include "cli/shell/device_options.h"
#include "cli/shell/progress.h"
#include "cli/verbs.h"
#include "config/files/machine_file.h"
#include "train/measure/calibration.h"

namespace trireme::cli {
namespace {

using base::Json;
using spec::Machine;

Json json_of(const train::Calibration& calibration) {
  const Machine& m = calibration.machine;
  const plan::Times& times = calibration.times;
  const auto kind = [](size_t rows, double error) {
    return Json{{"rows", rows}, {"mean_abs_error", error}};
  };
  return {{"products", kind(times.products.size(), m.residuals.gemm)},
          {"attention", kind(times.attention.size(), m.residuals.attention)},
          {"streaming", kind(times.streams.size(), m.residuals.streaming)},
          {"collectives", kind(times.collectives.size(), m.residuals.collective)},
          {"steps", kind(calibration.steps, m.residuals.step)}};
}

// Throws Error if the file could not be read back: then the measurement is at fault, not a line of
// a file.
void check_readable(const std::string& text, const std::string& name) {
  try {
    (void)config::machine_from_text(text, name);
  } catch (const base::ConfigError& error) {
    throw base::Error(fmt::format(
        "the measured times contradict each other, as on a busy machine; measure again when it "
        "is idle. Nothing was written. {}",
        error.what()));
  }
}

int run_calibrate(const Args& args) {
  const std::filesystem::path out = args.text("--out");
  if (!out.empty()) check_machine_file(out, args.flag("--overwrite"));
  std::optional<Machine> like;
  if (args.has("--like")) like = config::machine_from_file(args.text("--like"), machine_folders());
  const config::System system = system_of(args);
  train::Platform platform = train::make_platform(system);
  int64_t count = 0;
  std::optional<Progress> progress;
  train::CalibrationOptions options{.is_quick = args.flag("--quick"), .like = like};
  if (!out.empty()) options.name = out.stem().string();
  options.begin = [&](std::string_view part, int64_t total) {
    if (progress) progress->finish();
    progress.emplace("calibrate", std::string(part), total);
    count = 0;
  };
  options.measured = [&](std::string_view what) { progress->update(++count, what); };
  const train::Calibration calibration = train::calibrate(system, platform, options);
  progress->finish();
  const Machine& m = calibration.machine;
  const std::string& noise = calibration.warning;
  if (!noise.empty()) base::log_warning("{}", noise);
  const std::string text = config::machine_text(
      m,
      "Written by trireme calibrate. machines/README.md describes the keys.\n"
      "[residuals] are mean absolute errors of the times that the constants were fitted to.",
      4);
  check_readable(text, m.name);
  if (!out.empty()) write_machine_file(out, text);
  if (args.wants_json()) {
    Json json = {{"ok", true},
                 {"machine", config::machine_json(m)},
                 {"fitted", json_of(calibration)},
                 {"file", out.string()}};
    if (!noise.empty()) json["warning"] = noise;
    fmt::print("{}\n", json.dump());
    return 0;
  }
  fmt::print("{}", text);
  if (platform.is_gpu() && !like) {
    fmt::print(
        "\nOne GPU: links were not measured. --like NAME copies those of another machine.\n");
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
          "Times matrix products, attention and memory-bound operations with the kernels that\n"
          "training uses, and on a CPU also all-reduces between ranks that are threads. Fits a "
          "few\n"
          "constants to the times and writes them with the remaining errors. The machine should "
          "be\n"
          "idle. machines/README.md describes the file.\n\n"
          "Examples:\n"
          "  trireme calibrate --out mine.toml\n"
          "  trireme calibrate --device cpu --threads 1 --quick --json\n"
          "  trireme calibrate --device cuda --like h200 --out mine.toml",
      .options = {{.name = "--out",
                   .help = "Machine file to write; without it the file is only printed"},
                  {.name = "--overwrite",
                   .kind = Kind::flag,
                   .help = "Replace the file of --out if it already exists"},
                  {.name = "--like",
                   .help =
                       "Machine (name or file) whose links, network and fp8 figures are copied"},
                  {.name = "--quick",
                   .kind = Kind::flag,
                   .help = "Measure fewer shapes, with fewer repetitions"}},
      .run = run_calibrate};
  for (const Option& option : device_options()) verb.options.push_back(option);
  return verb;
}

}  // namespace trireme::cli
