// SPDX-License-Identifier: Apache-2.0
#include "cli/ckpt/ckpt_place.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/system/regular_file.h"
#include "base/text/count_text.h"
#include "base/text/json.h"
#include "ckpt/disk/posix_disk.h"
#include "ckpt/generation/folder.h"
#include "config/files/model_file.h"
#include "obs/run_dir.h"
#include "obs/run_owner.h"
#include "spec/plan.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;
using base::IoError;

constexpr const char* default_folder = "checkpoint";  // checkpoint.folder

// Returns null if there is no such file, or a discarded value if it is not JSON.
base::Json json_of(const fs::path& file) {
  constexpr int64_t max_bytes = int64_t{64} << 20;
  const base::Result<std::string> text = base::read_regular_file(file, max_bytes);
  return text ? base::Json::parse(text.value(), nullptr, false) : base::Json();
}

// Returns the checkpoint folder of the run in `run`, which need not exist yet.
fs::path folder_of_run(const fs::path& run) { return run_folders(run).checkpoints; }

bool has_generations(const fs::path& folder) {
  return !ckpt::committed_steps(*ckpt::posix_disk(), folder).empty();
}

// Removes a trailing slash, so that the path has a name and a parent.
fs::path plain(const fs::path& path) {
  fs::path plain = fs::absolute(path).lexically_normal();
  if (!plain.has_filename()) plain = plain.parent_path();
  return plain;
}

std::string axes_text(const spec::Plan& plan) {
  std::string text;
  for (const spec::Axis axis :
       {spec::Axis::pp, spec::Axis::dp, spec::Axis::zero, spec::Axis::cp, spec::Axis::tp}) {
    if (plan.mesh[axis] == 1) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : " x ", spec::name_of(axis), plan.mesh[axis]);
  }
  for (const spec::Axis axis : {spec::Axis::ep, spec::Axis::etp}) {  // of the same ranks
    if (plan.mesh[axis] > 1) text += fmt::format(", {} {}", spec::name_of(axis), plan.mesh[axis]);
  }
  return text;
}

}  // namespace

RunFolders run_folders(const fs::path& run) {
  const base::Json config = json_of(run / obs::RunDir::config_name);
  const auto folder = [&](const char* key, const char* otherwise) {
    const base::Json::json_pointer pointer(key);
    const bool is_known =
        config.is_object() && config.contains(pointer) && config.at(pointer).is_string();
    return run / (is_known ? config.at(pointer).get<std::string>() : otherwise);
  };
  return {.checkpoints = folder("/checkpoint/folder", default_folder),
          .weights = folder("/checkpoint/export_folder", obs::RunDir::weights_name)};
}

bool is_checkpoint(const fs::path& path) {
  return ckpt::step_from_name(plain(path).filename().string()).has_value() ||
         has_generations(path) || has_generations(folder_of_run(path));
}

CheckpointPlace checkpoint_place(const fs::path& path) {
  if (!fs::exists(path)) throw IoError(fmt::format("{}: there is no such folder", path.string()));
  const fs::path folder = plain(path);
  if (!fs::is_directory(folder)) {
    throw IoError(fmt::format(
        "{}: is a file; give a run's folder, its checkpoint folder or a checkpoint in it",
        path.string()));
  }
  if (const auto step = ckpt::step_from_name(folder.filename().string())) {
    return {folder.parent_path(), step};
  }
  if (has_generations(path)) return {path, {}};
  const fs::path of_run = folder_of_run(path);
  if (has_generations(of_run)) return {of_run, {}};
  if (obs::holds_run(path)) {
    throw IoError(fmt::format(
        "{}: this run has saved no checkpoint in {}; checkpoint.interval sets how often it saves",
        path.string(), of_run.filename().string()));
  }
  if (fs::exists(path / "config.json")) {
    throw IoError(
        fmt::format("{}: is not a checkpoint but Hugging Face weights; `trireme ckpt import` "
                    "converts them to a "
                    "checkpoint",
                    path.string()));
  }
  throw IoError(fmt::format(
      "{}: is not a checkpoint; give a run's folder, its checkpoint folder, or a checkpoint in it "
      "such as {}",
      path.string(), ckpt::generation_name(100)));
}

ckpt::Generation open_checkpoint(ckpt::Disk& disk, const fs::path& path,
                                 std::optional<int64_t> step) {
  const CheckpointPlace place = checkpoint_place(path);
  if (place.step && step && *place.step != *step) {
    throw base::ConfigError(fmt::format("--step {}: {} is the checkpoint of step {}", *step,
                                        path.string(), *place.step));
  }
  if (const std::optional<int64_t> wanted = place.step ? place.step : step) {
    const std::vector<int64_t> steps = ckpt::committed_steps(disk, place.root);
    if (std::ranges::find(steps, *wanted) == steps.end()) {
      throw IoError(fmt::format("{}: there is no checkpoint of step {}; there are those of {}",
                                path.string(), *wanted, steps_text(steps)));
    }
    return ckpt::Generation::open(disk, place.root / ckpt::generation_name(*wanted));
  }
  ckpt::NewestGood found = ckpt::newest_good(disk, place.root, ckpt::Verify::structure);
  std::string problems;
  for (const ckpt::GenerationInfo& skipped : found.skipped) {
    problems += fmt::format("\n  step {}: {}", skipped.step, skipped.problem);
  }
  if (!found.generation) {
    throw IoError(fmt::format("{}: no checkpoint can be read:{}", path.string(), problems));
  }
  for (const ckpt::GenerationInfo& skipped : found.skipped) {
    base::log_warning("checkpoint of step {} skipped: {}", skipped.step, skipped.problem);
  }
  return std::move(*found.generation);
}

const Option& step_option() {
  static const Option option = {
      .name = "--step",
      .kind = Kind::integer,
      .help = "Step of the checkpoint; default: the newest that can be opened"};
  return option;
}

std::optional<int64_t> asked_step(const Args& args) {
  if (!args.has("--step")) return {};
  const int64_t step = args.integer("--step");
  if (step < 0) throw base::ConfigError(fmt::format("--step {}: must be 0 or above", step));
  return step;
}

fs::path folder_to_write(const fs::path& path) {
  const fs::path folder = plain(path);
  if (fs::exists(folder) && !fs::is_directory(folder)) {
    throw IoError(
        fmt::format("{}: is a file; give a folder to write checkpoints to", path.string()));
  }
  if (ckpt::step_from_name(folder.filename().string())) {
    throw IoError(fmt::format("{}: has the name of a checkpoint; give the folder to create it in",
                              path.string()));
  }
  const bool is_root = folder.filename() == default_folder || has_generations(folder);
  const fs::path root = is_root ? path : folder_of_run(path);
  // A running process does not expect new checkpoints beside those that it saves.
  if (const std::string held = obs::RunOwner::refusal(plain(root).parent_path(), false);
      !held.empty()) {
    throw IoError(held);
  }
  std::error_code error;
  fs::create_directories(root, error);
  if (error)
    throw IoError(fmt::format("{}: cannot be created: {}", root.string(), error.message()));
  return root;
}

fs::path run_file_of(const ckpt::Generation& generation) {
  const fs::path run = plain(generation.folder()).parent_path().parent_path();
  const fs::path file = run / obs::RunDir::config_name;
  return fs::exists(file) ? file : fs::path();
}

spec::ModelDims model_of(const ckpt::Generation& generation) {
  const std::string where = (generation.folder() / ckpt::manifest_name).string();
  const base::Json& state = generation.manifest().state;
  if (state.contains("model")) return config::dims_from_json(state.at("model"), where + ": model");
  const fs::path file = run_file_of(generation);
  const base::Json config = file.empty() ? base::Json() : json_of(file);
  const auto pointer = base::Json::json_pointer("/model/dims");
  if (config.is_object() && config.contains(pointer)) {
    return config::dims_from_json(config.at(pointer), file.string() + ": model.dims");
  }
  throw base::ConfigError(
      fmt::format("{}: does not contain the model, and there is no run.json of its run; move the "
                  "checkpoint back "
                  "to where the run saved it",
                  where));
}

std::string layout_words(const ckpt::Manifest& manifest) {
  const auto ranks = static_cast<int64_t>(manifest.files.size());
  std::string text = base::count_text(ranks, "rank");
  if (manifest.plan.empty()) return text + ", no plan";
  try {
    const spec::Plan plan = spec::plan_from_json(manifest.plan);
    if (const std::string axes = axes_text(plan); !axes.empty()) text += ": " + axes;
    if (plan.stages() > 1) text += fmt::format(", {} stages", plan.stages());
    const int stage = plan.zero.params ? 3 : (plan.zero.grads ? 2 : (plan.zero.optim ? 1 : 0));
    if (stage > 0 && plan.mesh[spec::Axis::zero] > 1) text += fmt::format(", ZeRO-{}", stage);
    if (plan.layout.sequence_parallel) text += ", sequence parallel";
    return text;
  } catch (const base::ConfigError& error) {
    return fmt::format("{}, a plan that this version cannot read ({})", text, error.what());
  }
}

std::string steps_text(const std::vector<int64_t>& steps) {
  constexpr size_t max_steps = 12;
  std::string text;
  for (size_t i = 0; i < std::min(steps.size(), max_steps); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : ", ", steps[i]);
  }
  if (steps.size() > max_steps) text += fmt::format(" and {} older ones", steps.size() - max_steps);
  return text.empty() ? "none" : text;
}

}  // namespace trireme::cli
