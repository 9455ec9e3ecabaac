// SPDX-License-Identifier: Apache-2.0
#include "cli/shell/config_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "cli/run/imported_config.h"

namespace trireme::cli {
namespace {

struct KeyOption {
  const char* option;
  const char* key;
};
constexpr auto key_options = std::to_array<KeyOption>({{"--model", "model.name"},
                                                       {"--data", "training.dataset_path"},
                                                       {"--steps", "training.steps"},
                                                       {"--init-from", "training.init_from"},
                                                       {"--device", "system.device"}});

// Returns whether --section.key=value, or --section.key value, sets the key.
bool is_overridden(const Args& args, const std::string& key) {
  return std::any_of(args.overrides().begin(), args.overrides().end(),
                     [&](const std::string& word) {
                       const std::string path = word.substr(0, word.find('='));
                       return path == "--" + key || (path == key && word.size() > key.size());
                     });
}

}  // namespace

std::vector<Option> config_options() {
  std::vector<Option> options = {
      {.name = "config",
       .help = "Configuration: TOML file, run.json of an earlier run, or - for standard input; not "
               "needed with --model"},
      {.name = "--model",
       .help = "Model: a name in configs/models, a TOML file, or a Hugging Face config.json or its "
               "folder; sets model.name"},
      {.name = "--data",
       .help = "Data set to train on: tokens or text; sets training.dataset_path"},
      {.name = "--steps",
       .kind = Kind::integer,
       .help = "Number of training steps; sets training.steps"},
      {.name = "--device",
       .help = "Device: auto, cuda (or gpu) or cpu; sets system.device",
       .offered = {"auto", "cuda", "cpu"}}};
  const std::vector<Option> imports = import_options();
  options.insert(options.end(), imports.begin(), imports.end());
  return options;
}

config::ConfigText config_text_of(const Args& args) {
  if (const std::string option = import_option(args); !option.empty()) {
    if (args.has("config")) {
      throw base::ConfigError(fmt::format("{} and {} each name the configuration: give one of them",
                                          args.text("config"), option));
    }
    const plan::Conversion conversion = imported_config(args, {.data = args.text("--data")});
    return {.name = conversion.source + ", converted",
            .folder = ".",
            .text = plan::to_toml(conversion)};
  }
  if (args.has("config")) return config::read_config_text(args.text("config"));
  const bool names_model = args.has("--model") || is_overridden(args, "model.name") ||
                           is_overridden(args, "training.init_from") ||
                           (args.accepts("--init-from") && args.has("--init-from"));
  if (!names_model) {
    throw base::ConfigError(
        "no configuration file is given; give one (configs/kjv.toml is an example, `trireme init` "
        "writes one), or --model NAME --data FILE");
  }
  return {};
}

std::vector<std::string> overrides_of(const Args& args) {
  std::vector<std::string> words = args.overrides();
  for (const auto& [option, key] : key_options) {
    if (!args.accepts(option) || !args.has(option)) continue;
    if (is_overridden(args, key)) {
      throw base::ConfigError(
          fmt::format("{} and --{} set the same key: give one of them", option, key));
    }
    words.push_back(fmt::format("--{}={}", key, args.text(option)));
  }
  return words;
}

}  // namespace trireme::cli
