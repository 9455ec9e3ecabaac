// SPDX-License-Identifier: Apache-2.0
// trireme ckpt mark: marks a checkpoint by hand.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/text/json.h"
#include "ckpt/disk/posix_disk.h"
#include "ckpt/generation/folder.h"
#include "ckpt/marks/mark_file.h"
#include "cli/ckpt/ckpt_place.h"
#include "cli/ckpt/ckpt_verbs.h"
#include "obs/clock.h"

namespace trireme::cli {
namespace {

// Returns the checkpoint of a step. Throws IoError that lists the available steps.
ckpt::MarkedGeneration generation_to_mark(ckpt::Disk& disk, const std::filesystem::path& root,
                                          int64_t step) {
  const auto all = ckpt::marked_generations(disk, root, ckpt::read_marks(disk, root));
  const auto found =
      std::ranges::find_if(all, [&](const auto& one) { return one.id.step == step; });
  if (found == all.end()) {
    throw base::IoError(fmt::format("{}: there is no checkpoint of step {}; there are those of {}",
                                    root.string(), step,
                                    steps_text(ckpt::committed_steps(disk, root))));
  }
  if (found->id.epoch < 0) (void)ckpt::read_manifest(disk, root / ckpt::generation_name(step));
  return *found;
}

// Returns the steps whose mark a new line changes, newest first.
std::vector<int64_t> covered_steps(ckpt::Disk& disk, const std::filesystem::path& root,
                                   const ckpt::MarkLine& line) {
  std::vector<int64_t> steps;
  for (const auto& one : ckpt::marked_generations(disk, root, ckpt::read_marks(disk, root))) {
    if (one.mark && *one.mark == line) steps.push_back(one.id.step);
  }
  return steps;
}

int run_ckpt_mark(const Args& args) {
  const auto disk = ckpt::posix_disk();
  const CheckpointPlace place = checkpoint_place(args.text("folder"));
  const int64_t step = args.integer("step");
  if (args.text("--why").empty()) {
    throw base::ConfigError("--why is empty: give the reason, which `ckpt list` shows");
  }
  const ckpt::MarkedGeneration one = generation_to_mark(*disk, place.root, step);
  const ckpt::MarkLine line{.of = one.id,
                            .mark = *ckpt::mark_from(args.text("mark")),
                            .detector = ckpt::hand_detector,
                            .evidence = args.text("--why"),
                            .time = obs::wall_seconds()};
  ckpt::add_marks(place.root, {line});
  const std::vector<int64_t> covered = covered_steps(*disk, place.root, line);
  if (args.wants_json()) {
    fmt::print("{}\n", base::Json{{"ok", true},
                                  {"folder", place.root.string()},
                                  {"step", step},
                                  {"mark", ckpt::name_of(line.mark)},
                                  {"why", line.evidence},
                                  {"covers", covered}}
                           .dump());
    return 0;
  }
  fmt::print("step {} is marked {}: {}\n", step, ckpt::name_of(line.mark), line.evidence);
  if (covered.size() > 1) {
    fmt::print("so are the checkpoints that continue it: {}\n",
               steps_text({covered.begin(), covered.end() - 1}));
  }
  return 0;
}

}  // namespace

Verb ckpt_mark_verb() {
  return {
      .name = "ckpt mark",
      .summary = "Mark a checkpoint as good, suspect or bad",
      .details =
          "--resume auto takes no checkpoint that is marked bad, and --resume good one that is\n"
          "marked good. A bad mark covers later checkpoints of the run, too, unless the run "
          "has\ncontinued from before it. The last mark counts; the checkpoint does not "
          "change.\n\nExamples:\n"
          "  trireme ckpt mark runs/saved 20 bad --why 'the loss of its evaluation is wrong'\n"
          "  trireme ckpt mark runs/saved 20 good --why 'evaluated' --json",
      .options = {{.name = "folder",
                   .help = "Run's folder, or its checkpoint folder",
                   .is_required = true},
                  {.name = "step",
                   .kind = Kind::integer,
                   .help = "Step of the checkpoint",
                   .is_required = true},
                  {.name = "mark",
                   .help = "The mark",
                   .is_required = true,
                   .choices = {"good", "suspect", "bad"}},
                  {.name = "--why",
                   .help = "The reason, which `ckpt list` shows",
                   .is_required = true}},
      .run = run_ckpt_mark};
}

}  // namespace trireme::cli
