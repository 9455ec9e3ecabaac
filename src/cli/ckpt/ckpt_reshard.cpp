// SPDX-License-Identifier: Apache-2.0
// trireme ckpt reshard: rewrites a checkpoint for another layout.
#include <fstream>
#include <iterator>
#include <set>

#include "base/error.h"
#include "base/text/json.h"
#include "ckpt/disk/posix_disk.h"
#include "ckpt/offline_reshard.h"
#include "cli/ckpt/ckpt_place.h"
#include "cli/ckpt/ckpt_verbs.h"
#include "cli/shell/progress.h"
#include "cli/verbs.h"
#include "comm/mesh.h"
#include "config/config.h"
#include "obs/terminal/number_text.h"
#include "train/checkpointing/saved_state.h"
#include "train/setup/setup.h"

namespace trireme::cli {
namespace {

struct Target {
  spec::ModelSpec model;
  spec::Plan plan;
};

spec::Plan read_plan(const std::filesystem::path& file) {
  std::error_code ignored;  // reading a named pipe would wait for a writer
  if (std::filesystem::exists(file, ignored) && !std::filesystem::is_regular_file(file, ignored)) {
    throw base::IoError(fmt::format("{}: is not a file", file.string()));
  }
  std::ifstream in(file, std::ios::binary);
  if (!in.is_open()) throw base::IoError(fmt::format("{}: cannot be opened", file.string()));
  const base::Json json =
      base::Json::parse(std::string(std::istreambuf_iterator<char>(in), {}), nullptr, false);
  if (json.is_discarded()) {
    throw base::IoError(
        fmt::format("{}: is not valid JSON; give plan.json of a run", file.string()));
  }
  try {
    return spec::plan_from_json(json);
  } catch (const base::ConfigError& error) {
    throw base::ConfigError(fmt::format("{}: {}", file.string(), error.what()));
  }
}

// Returns the plan of --plan, or that of --config or the run's configuration with the given keys.
Target target_of(const Args& args, const ckpt::Generation& from) {
  if (args.has("--plan")) {
    if (args.has("--config") || !args.overrides().empty()) {
      throw base::ConfigError(
          "--plan contains the whole layout: give it without --config and keys");
    }
    Target target{spec::make_model(model_of(from)), read_plan(args.text("--plan"))};
    spec::check_plan(target.model, target.plan);
    return target;
  }
  if (!args.has("--config") && args.overrides().empty()) {
    throw base::ConfigError(
        "no layout is given; give --plan plan.json, --config FILE, or keys such as "
        "--parallelism.data_parallel_shard_degree=2");
  }
  const std::filesystem::path file =
      args.has("--config") ? std::filesystem::path(args.text("--config")) : run_file_of(from);
  if (file.empty()) {
    throw base::ConfigError(
        fmt::format("{}: there is no run.json of its run to change; give --config or --plan",
                    from.folder().string()));
  }
  const config::Config asked =
      config::load(file, {.overrides = args.overrides(), .model_folders = model_folders()});
  const bool is_gpu = asked.system.device == "cuda";
  const config::Config config = config::settle_dtype(config::solved(asked, 0), is_gpu);
  Target target{spec::make_model(config.dims), {}};
  target.plan = train::make_plan(
      config, target.model,
      is_gpu ? spec::cuda_backend(config.system.determinism != "fast") : spec::cpu_backend());
  return target;
}

int ranks_of(const spec::Plan& plan) {
  int ranks = 1;
  for (const spec::Axis axis :
       {spec::Axis::pp, spec::Axis::dp, spec::Axis::zero, spec::Axis::cp, spec::Axis::tp}) {
    ranks *= plan.mesh[axis];
  }
  return ranks;
}

// Throws ConfigError unless the target's model has the tensors of the checkpoint.
void expect_same_model(const Target& target, const ckpt::Generation& from) {
  train::expect_optimizer(target.plan, from);
  std::set<std::string> wanted, found;
  const auto text = [](const ckpt::TensorInfo& tensor) {
    std::string line = tensor.name + " [";
    for (const int64_t size : tensor.shape) line += std::to_string(size) + " ";
    line.back() = ']';
    return line;
  };
  for (int rank = 0; rank < ranks_of(target.plan); ++rank) {
    for (const ckpt::TensorPieces& part :
         train::saved_pieces(target.model, target.plan, comm::coord_of(target.plan.mesh, rank))) {
      wanted.insert(text(part.tensor));
    }
  }
  for (const ckpt::TensorInfo& tensor : from.manifest().tensors) found.insert(text(tensor));
  const auto lacks = [&from](const std::set<std::string>& all, const std::set<std::string>& some,
                             const char* where) {
    for (const std::string& name : all) {
      if (some.contains(name)) continue;
      throw base::ConfigError(fmt::format("{}: the layout belongs to another model: {} has no {}",
                                          from.folder().string(), where, name));
    }
  };
  lacks(wanted, found, "the checkpoint");
  lacks(found, wanted, "that model");
}

int run_ckpt_reshard(const Args& args) {
  const auto disk = ckpt::posix_disk();
  const ckpt::Generation from = open_checkpoint(*disk, args.text("from"), asked_step(args));
  const Target target = target_of(args, from);
  expect_same_model(target, from);
  const std::filesystem::path root = folder_to_write(args.text("--out"));
  Progress progress("reshard", "MiB", from.data_bytes() >> 20);
  const std::filesystem::path made =
      ckpt::reshard(*disk, from,
                    {.root = root,
                     .ranks = ranks_of(target.plan),
                     .pieces_of =
                         [&target](int rank) {
                           return train::saved_pieces(target.model, target.plan,
                                                      comm::coord_of(target.plan.mesh, rank));
                         },
                     .plan = spec::to_json(target.plan),
                     .progress = [&](int64_t bytes) { progress.update(bytes >> 20); }});
  progress.finish();
  const ckpt::Generation generation = ckpt::Generation::open(*disk, made);
  const std::string layout = layout_words(generation.manifest());
  if (args.wants_json()) {
    fmt::print("{}\n", base::Json{{"ok", true},
                                  {"checkpoint", made.string()},
                                  {"generation", made.string()},  // the old name of "checkpoint"
                                  {"step", generation.manifest().step},
                                  {"ranks", generation.manifest().files.size()},
                                  {"layout", layout},
                                  {"bytes", generation.data_bytes()}}
                           .dump());
  } else {
    fmt::print("{}: {}, {}\n", made.string(), layout, obs::bytes_text(generation.data_bytes()));
  }
  return 0;
}

}  // namespace

Verb ckpt_reshard_verb() {
  return {.name = "ckpt reshard",
          .summary = "Rewrite a checkpoint as another layout would save it",
          .details =
              "`train --resume` loads any layout into any other, so this is for other programs, "
              "for fewer\n"
              "and larger files, or for a copy. Memory does not grow with the number of layers.\n"
              "--section.key=value changes the configuration of the run that saved the checkpoint; "
              "--plan\n"
              "gives a plan unchanged.\n\nExamples:\n"
              "  trireme ckpt reshard runs/saved --out runs/resharded "
              "--parallelism.tensor_parallel_degree=2\n"
              "  trireme ckpt reshard runs/saved --step 20 --out runs/back --plan "
              "runs/saved/plan.json",
          .options = {{.name = "from",
                       .help = "Run's folder, its checkpoint folder, or a checkpoint",
                       .is_required = true},
                      step_option(),
                      {.name = "--out",
                       .help = "Folder of another run, or a checkpoint folder, to write to",
                       .is_required = true},
                      {.name = "--plan", .help = "plan.json of a run, whose layout is written"},
                      {.name = "--config",
                       .help = "Configuration whose layout is written; default: that of the run"}},
          .takes_overrides = true,
          .run = run_ckpt_reshard};
}

}  // namespace trireme::cli
