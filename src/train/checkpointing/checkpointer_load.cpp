// SPDX-License-Identifier: Apache-2.0
// Checkpointer: loading generations, and the start of a run in a folder that contains some.
#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/error.h"
#include "base/text/json.h"
#include "train/checkpointing/checkpointer.h"

namespace trireme::train {

bool Checkpointer::try_load(int64_t step, Loaded& loaded, std::string& problem) {
  try {
    const ckpt::Generation generation =
        ckpt::Generation::open(disk_, options_.folder / ckpt::generation_name(step));
    load_state(engine_, model_, rank_.coord(), generation);
    const ckpt::Manifest& manifest = generation.manifest();
    loaded = {step, manifest.state, manifest.plan, generation.folder(), manifest.writer};
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

std::optional<Checkpointer::Loaded> Checkpointer::load(const LoadOptions& options) {
  const int64_t step = options.step;
  std::vector<int64_t> candidates;
  if (rank_.is_first()) {
    candidates = ckpt::committed_steps(disk_, options_.folder);
    if (step >= 0) {
      std::erase_if(candidates, [step](int64_t candidate) { return candidate != step; });
    }
    if (options.below >= 0) {
      std::erase_if(candidates, [&](int64_t candidate) { return candidate >= options.below; });
    }
  }
  const auto count = rank_.gather(static_cast<int64_t>(candidates.size())).front();
  for (int64_t i = 0; i < count; ++i) {
    const int64_t own = rank_.is_first() ? candidates[static_cast<size_t>(i)] : 0;
    const int64_t tried = rank_.gather(own).front();
    Loaded loaded;
    std::string problem;
    const std::vector<bool> are_good = [&] {
      const std::vector<uint8_t> by_rank =
          rank_.gather(static_cast<uint8_t>(try_load(tried, loaded, problem) ? 1 : 0));
      return std::vector<bool>(by_rank.begin(), by_rank.end());
    }();
    if (std::find(are_good.begin(), are_good.end(), false) == are_good.end()) {
      engine_.state_changed();
      return loaded;
    }
    if (!problem.empty())
      hooks_.log(fmt::format("checkpoint of step {} skipped: {}", tried, problem));
  }
  if ((count == 0 && step < 0) || !options.is_needed) return {};
  throw base::IoError(count == 0   ? fmt::format("{}: there is no checkpoint of step {}",
                                                 options_.folder.string(), step)
                      : count == 1 ? fmt::format("{}: its only checkpoint cannot be loaded",
                                                 options_.folder.string())
                                   : fmt::format("{}: none of {} checkpoints can be loaded",
                                                 options_.folder.string(), count));
}

void Checkpointer::continue_run(const Begin& begin) {
  // All ranks name drafts alike: the first rank sends its writer to the others.
  struct WriterBytes {
    std::array<char, 40> run{};
    int64_t epoch = 0;
  } writer;
  TRIREME_CHECK(begin.writer.run.size() < writer.run.size(), "run '{}'", begin.writer.run);
  std::ranges::copy(begin.writer.run, writer.run.begin());
  writer.epoch = begin.writer.epoch;
  writer = rank_.gather(writer).front();
  manifest_.writer = {.run = writer.run.data(), .epoch = writer.epoch};
}

void Checkpointer::begin_run(const Begin& begin) {
  continue_run(begin);
  rank_.on_first([&] {
    std::vector<std::string> runs = {manifest_.writer.run};
    if (!begin.previous_run.empty()) runs.push_back(begin.previous_run);
    for (const std::string& problem :
         ckpt::remove_leftovers(disk_, options_.folder, runs).problems) {
      hooks_.log(
          fmt::format("warning: incomplete files of an earlier run were not removed: {}", problem));
    }
    for (const std::string& name : ckpt::set_aside_newer(disk_, options_.folder, begin.step)) {
      hooks_.log(fmt::format("checkpoint of another run moved aside to {}",
                             (options_.folder / name).string()));
    }
  });
}

}  // namespace trireme::train
