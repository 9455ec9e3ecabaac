// SPDX-License-Identifier: Apache-2.0
// Checkpointer: loading generations, and the start of a run in a folder that contains some.
#include <algorithm>
#include <span>

#include "base/error.h"
#include "base/text/json.h"
#include "ckpt/marks/mark_file.h"
#include "train/checkpointing/checkpointer.h"
#include "train/checkpointing/resume_point.h"
#include "train/checkpointing/saved_state.h"

namespace trireme::train {
namespace {

// Returns why a run that begins does not continue this generation.
std::string why_aside(ckpt::Disk& disk, const std::filesystem::path& generation,
                      const Checkpointer::Begin& begin) {
  const std::string problem = ckpt::missing_in(disk, generation);
  if (!problem.empty()) return "it is damaged: " + problem;
  const std::string writer = ckpt::read_manifest(disk, generation).writer.run;
  if (!writer.empty() && writer != begin.writer.run) return "it belongs to another run";
  if (begin.step < 0) return "this run starts from the beginning";
  return fmt::format("this run continues from step {}", begin.step);
}

}  // namespace

bool Checkpointer::try_load(int64_t step, Loaded& loaded, std::string& problem) {
  try {
    const ckpt::Generation generation =
        ckpt::Generation::open(disk_, options_.folder / ckpt::generation_name(step));
    load_state(engine_, model_, rank_.coord(), generation);
    const ckpt::Manifest& manifest = generation.manifest();
    loaded = {
        .step = step,
        .state = manifest.state,
        .plan = is_imported(generation) ? spec::Plan{} : saved_plan(generation.folder(), manifest),
        .folder = generation.folder(),
        .writer = manifest.writer};
    engine_.set_step_state(step_state_from(loaded.state.at("clipping")));
    return true;
  } catch (const OtherOptimizer&) {
    throw;  // on all ranks: older checkpoints have the same optimizer
  } catch (const base::Error& error) {
    problem = error.what();
  } catch (const base::Json::exception& error) {
    problem = fmt::format("state in the manifest: {}", error.what());
  }
  return false;
}

std::string Checkpointer::difference(int64_t step) {
  const ckpt::Generation generation =
      ckpt::Generation::open(disk_, options_.folder / ckpt::generation_name(step));
  const std::string own = state_difference(engine_, model_, rank_.coord(), generation);
  const std::vector<uint8_t> all = rank_.gather(static_cast<uint8_t>(own.empty() ? 0 : 1));
  const auto differs = std::find(all.begin(), all.end(), uint8_t{1});
  if (differs == all.end()) return {};
  return own.empty() ? fmt::format("the state of rank {}", differs - all.begin()) : own;
}

std::vector<int64_t> Checkpointer::candidates(const LoadOptions& options) {
  std::vector<int64_t> steps;
  rank_.on_first([&] {
    if (options.step < 0 && options.below < 0) {
      const ckpt::ResumeChoice choice = resume_choice(disk_, options_.folder, options.mark);
      if (!choice.note.empty()) hooks_.log("resume    " + choice.note);
      steps = choice.steps;
      return;
    }
    const ckpt::Marks marks = ckpt::read_marks(disk_, options_.folder);
    for (const auto& one : ckpt::marked_generations(disk_, options_.folder, marks)) {
      const int64_t step = one.id.step;
      if (options.step >= 0 && step != options.step) continue;
      if (options.below >= 0 && step >= options.below) continue;
      steps.push_back(step);
      if (options.step >= 0 && one.is(ckpt::Mark::bad)) {
        hooks_.log("warning: the checkpoint that was requested is marked bad: " +
                   ckpt::marks_text(std::span(&one, 1)));
      }
    }
  });
  steps.resize(static_cast<size_t>(rank_.gather(std::ssize(steps)).front()));
  for (int64_t& step : steps) step = rank_.gather(step).front();
  return steps;
}

std::optional<Checkpointer::Loaded> Checkpointer::load_step(int64_t step) {
  Loaded loaded;
  std::string problem;
  const bool is_good = try_load(step, loaded, problem);
  const std::vector<uint8_t> are_good = rank_.gather(static_cast<uint8_t>(is_good ? 1 : 0));
  if (!problem.empty()) {
    hooks_.log(fmt::format("checkpoint of step {} skipped: {}", step, problem));
  }
  if (std::ranges::find(are_good, uint8_t{0}) != are_good.end()) return {};
  engine_.state_changed();
  return loaded;
}

std::optional<Checkpointer::Loaded> Checkpointer::loaded_none(
    const LoadOptions& options, const std::vector<int64_t>& tried) const {
  const size_t count = tried.size();
  if ((count == 0 && options.step < 0) || !options.is_needed) return {};
  throw base::IoError(count == 0   ? fmt::format("{}: there is no checkpoint of step {}",
                                                 options_.folder.string(), options.step)
                      : count == 1 ? fmt::format("{}: its only checkpoint cannot be loaded",
                                                 options_.folder.string())
                                   : fmt::format("{}: none of {} checkpoints can be loaded",
                                                 options_.folder.string(), count));
}

std::optional<Checkpointer::Loaded> Checkpointer::load(const LoadOptions& options) {
  const std::vector<int64_t> steps = candidates(options);
  for (const int64_t step : steps) {
    if (std::optional<Loaded> loaded = load_step(step)) return loaded;
  }
  return loaded_none(options, steps);
}

void Checkpointer::continue_run(const Begin& begin) {
  commit_.set_writer(begin.writer);
  commit_.set_resumed_from(begin.step);
}

void Checkpointer::begin_run(const Begin& begin) {
  continue_run(begin);
  rank_.on_first([&] {
    std::vector<std::string> runs = {commit_.manifest().writer.run};
    if (!begin.previous_run.empty()) runs.push_back(begin.previous_run);
    for (const std::string& problem :
         ckpt::remove_leftovers(disk_, options_.folder, runs).problems) {
      hooks_.log(
          fmt::format("warning: incomplete files of an earlier run were not removed: {}", problem));
    }
    for (const std::string& name : ckpt::set_aside_newer(disk_, options_.folder, begin.step)) {
      hooks_.log(fmt::format("checkpoint moved aside to {}: {}", (options_.folder / name).string(),
                             why_aside(disk_, options_.folder / name, begin)));
    }
  });
}

}  // namespace trireme::train
