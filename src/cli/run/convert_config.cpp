// SPDX-License-Identifier: Apache-2.0
// trireme convert-config: the job of another program as a configuration.
#include <fmt/format.h>

#include "base/error.h"
#include "base/text/count_text.h"
#include "base/text/json.h"
#include "cli/run/imported_config.h"
#include "cli/shell/new_file.h"
#include "cli/verbs.h"
#include "config/config.h"

namespace trireme::cli {
namespace {

int run_convert_config(const Args& args) {
  if (import_option(args).empty()) {
    throw base::ConfigError(
        "nothing to convert: give --from-torchtitan FILE or --from-megatron "
        "\"FLAGS\"");
  }
  const int64_t gpus = args.has("--gpus") ? args.integer("--gpus") : 0;
  if (args.has("--gpus") && (gpus < 1 || gpus > plan::max_described_gpus)) {
    throw base::ConfigError(
        fmt::format("--gpus {}: from 1 to {} are allowed", gpus, plan::max_described_gpus));
  }
  const NewFile file{.path = args.text("--output"), .may_replace = args.flag("--overwrite")};
  if (args.has("--output")) check_new_file(file);
  const plan::Conversion conversion =
      imported_config(args, {.gpus = gpus, .data = args.text("--data")});
  const std::string text = plan::to_toml(conversion);
  // A configuration that `train` would refuse is not written.
  (void)config::load(
      config::ConfigText{.name = conversion.source + ", converted", .folder = ".", .text = text},
      {.model_folders = model_folders(), .world = static_cast<int>(gpus)});
  if (args.has("--output")) write_new_file(file, text);
  if (args.wants_json()) {
    base::Json json = plan::to_json(conversion);
    json["ok"] = true;
    json["toml"] = text;
    if (args.has("--output")) json["file"] = file.path.string();
    fmt::print("{}\n", json.dump());
    return 0;
  }
  if (!args.has("--output")) {
    fmt::print("{}", text);
    return 0;
  }
  fmt::print("written   {}: {} of {}\n", file.path.string(),
             base::count_text(std::ssize(conversion.origins), "key"), conversion.source);
  for (const std::string& line : import_notes(conversion)) fmt::print("{}\n", line);
  return 0;
}

}  // namespace

Verb convert_config_verb() {
  Verb verb = {
      .name = "convert-config",
      .summary = "Convert the job of TorchTitan or Megatron-LM to a configuration",
      .details =
          "Writes a TOML file that `trireme train` accepts. The comment of each key names the\n"
          "setting of the source that it was made of; the head of the file lists what Trireme "
          "does\n"
          "otherwise (changed), and which settings have no place in it, with the reason "
          "(dropped).\n"
          "A setting that changes the run and cannot be converted is an error. Data is not\n"
          "converted, except that Megatron's files are read as they are. `train` and `launch`\n"
          "accept the same options and train at once. docs/coming-from-elsewhere.md has what maps\n"
          "to what.\n\nExamples:\n"
          "  trireme convert-config --from-torchtitan titan.toml --gpus 64\n"
          "  trireme convert-config --from-megatron pretrain.sh --output megatron-run.toml\n"
          "  trireme train --from-torchtitan titan.toml --data book.txt",
      .options = {{.name = "--gpus",
                   .kind = Kind::integer,
                   .help = "Number of GPUs; without it a degree that means all GPUs stays open"},
                  {.name = "--data",
                   .help = "Data set to train on: tokens or text; sets training.dataset_path"},
                  {.name = "--output", .help = "File to write; without it the text is printed"},
                  {.name = "--overwrite",
                   .kind = Kind::flag,
                   .help = "Replace the file of --output if it already exists"}},
      .run = run_convert_config};
  const std::vector<Option> options = import_options();
  verb.options.insert(verb.options.begin(), options.begin(), options.end());
  return verb;
}

}  // namespace trireme::cli
