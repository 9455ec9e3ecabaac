// SPDX-License-Identifier: Apache-2.0
// trireme ckpt verify: compares every byte of checkpoints with the hashes of the save.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/text/json.h"
#include "ckpt/disk/posix_disk.h"
#include "ckpt/generation/folder.h"
#include "ckpt/generation/generation.h"
#include "cli/ckpt/ckpt_place.h"
#include "cli/ckpt/ckpt_verbs.h"
#include "cli/shell/progress.h"
#include "obs/terminal/number_text.h"

namespace trireme::cli {
namespace {

struct Checked {
  int64_t step = 0, bytes = 0;
  std::vector<std::string> damage;
};

Checked check(ckpt::Disk& disk, const std::filesystem::path& root, int64_t step) {
  Checked checked{.step = step};
  try {
    const ckpt::Generation generation =
        ckpt::Generation::open(disk, root / ckpt::generation_name(step));
    checked.bytes = generation.data_bytes();
    Progress progress(fmt::format("ckpt verify, step {}", step), "bytes", checked.bytes);
    int64_t done = 0;
    checked.damage = generation.damage({}, [&](int64_t bytes) { progress.update(done += bytes); });
    progress.finish();
  } catch (const base::Error& error) {
    checked.damage = {error.what()};
  }
  return checked;
}

std::vector<int64_t> steps_to_check(ckpt::Disk& disk, const Args& args,
                                    const CheckpointPlace& place) {
  const std::vector<int64_t> steps = ckpt::committed_steps(disk, place.root);
  const std::optional<int64_t> asked = asked_step(args);
  if (!asked) return place.step ? std::vector<int64_t>{*place.step} : steps;
  if (std::ranges::find(steps, *asked) == steps.end() || (place.step && place.step != asked)) {
    throw base::IoError(fmt::format("{}: there is no checkpoint of step {}; there are those of {}",
                                    args.text("folder"), *asked, steps_text(steps)));
  }
  return {*asked};
}

int run_ckpt_verify(const Args& args) {
  const auto disk = ckpt::posix_disk();
  const CheckpointPlace place = checkpoint_place(args.text("folder"));
  base::Json list = base::Json::array();
  bool are_intact = true;
  for (const int64_t step : steps_to_check(*disk, args, place)) {
    const Checked checked = check(*disk, place.root, step);
    are_intact = are_intact && checked.damage.empty();
    list.push_back({{"step", step}, {"bytes", checked.bytes}, {"damage", checked.damage}});
    if (args.wants_json()) continue;
    if (checked.damage.empty()) {
      fmt::print("step {}: intact, {} read\n", step, obs::bytes_text(checked.bytes));
    }
    for (const std::string& line : checked.damage) {
      fmt::print("step {}: damaged: {}\n", step, line);
    }
  }
  if (args.wants_json()) {
    fmt::print("{}\n", base::Json{{"ok", are_intact},
                                  {"folder", place.root.string()},
                                  {"checkpoints", list},
                                  // The old name of "checkpoints".
                                  {"generations", std::move(list)}}
                           .dump());
  }
  return are_intact ? 0 : 1;
}

}  // namespace

Verb ckpt_verify_verb() {
  return {
      .name = "ckpt verify",
      .summary = "Read every byte of checkpoints and compare it with its hash",
      .details =
          "The exit code is 0 if all of these checkpoints are intact, otherwise 1.\n\nExamples:\n"
          "  trireme ckpt verify runs/saved\n"
          "  trireme ckpt verify runs/saved --step 20 --json",
      .options = {{.name = "folder",
                   .help = "Run's folder, its checkpoint folder, or a checkpoint",
                   .is_required = true},
                  {.name = "--step",
                   .kind = Kind::integer,
                   .help = "Step of the checkpoint to read; default: all checkpoints"}},
      .run = run_ckpt_verify};
}

}  // namespace trireme::cli
