// SPDX-License-Identifier: Apache-2.0
// The schema in words: help for the terminal, and the documentation page.
#include <fmt/format.h>

#include "config/model_file.h"
#include "config/schema.h"

namespace trireme::config {
namespace {

std::string table_of(const std::vector<Key>& keys) {
  std::string text = "| key | type | default | allowed | meaning |\n|---|---|---|---|---|\n";
  for (const Key& key : keys) {
    const std::string initial =
        key.is_required ? std::string("required") : fmt::format("`{}`", value_text(key));
    text += fmt::format("| `{}` | {} | {} | {} | {} |\n", key.name, type_name(key), initial,
                        rule_text(key), key.help);
  }
  return text;
}

// Consecutive keys of one section.
std::vector<std::vector<Key>> by_section(const std::vector<Key>& keys) {
  std::vector<std::vector<Key>> groups;
  for (const Key& key : keys) {
    if (groups.empty() || groups.back().front().section != key.section) groups.emplace_back();
    groups.back().push_back(key);
  }
  return groups;
}

}  // namespace

std::string help_text() {
  Config defaults;
  std::string text;
  for (const std::vector<Key>& keys : by_section(keys_of(defaults))) {
    text += fmt::format("[{}]\n", keys.front().section);
    for (const Key& key : keys) {
      const std::string rule = rule_text(key);
      text += fmt::format("  {} = {}  ({}{}{})\n      {}\n", key.name, value_text(key),
                          type_name(key), rule.empty() ? "" : ", ", rule, key.help);
    }
  }
  return text;
}

std::string configuration_page() {
  std::string text =
      "# Configuration\n\n"
      "This page is generated from the schema in `src/config/schema.cpp` and "
      "`src/config/model_file.cpp`; a test compares it.\n\n"
      "A run is configured by a TOML file with the sections below; every key has a default. Names "
      "are those of TorchTitan where the meaning is the same. A key is overridden on the command "
      "line with `--section.key=value`, `--section.key value`, or, to switch a boolean on, "
      "`--section.key`. All mistakes are reported at once: unknown sections and keys with the "
      "nearest spelling, wrong types, broken rules with the nearest legal values.\n\n"
      "The resolved configuration (defaults filled, -1 solved, the model's sizes included) is "
      "written to the run's folder as JSON. It is accepted in place of the TOML file and needs no "
      "model file.\n\n"
      "In place of a file, `-` and `/dev/stdin` read standard input, and a pipe, as "
      "`<(generate.sh)`, is read once; errors name `<stdin>`. `trireme launch -` hands it to "
      "its ranks; under mpirun or torchrun a file is needed, because their processes have no "
      "standard input of their own. Without any file `--model NAME --data FILE` is enough. "
      "Element types may be spelled as elsewhere: `float32`, `fp32` and `f32`, `bfloat16` and "
      "`bf16`, `uint16` and `u16`; `run.json` has one spelling.\n\n"
      "`model.name` without a slash is looked for as `<name>.toml` in the folder `models` beside "
      "the configuration file, then in the folders that the program knows.\n";
  Config defaults;
  for (const std::vector<Key>& keys : by_section(keys_of(defaults))) {
    text += fmt::format("\n## [{}]\n\n{}", keys.front().section, table_of(keys));
  }
  text +=
      "\n# Model files\n\n"
      "A model is a TOML file of its own, as those in `configs/models/`. A Hugging Face "
      "`config.json` of type gpt2, llama, qwen2 or qwen3 does as well.\n";
  ModelKeys defaults_of_model;
  for (const std::vector<Key>& keys : by_section(keys_of(defaults_of_model))) {
    const std::string_view section = keys.front().section;
    if (!section.empty()) text += fmt::format("\n## [{}], optional, llama only\n", section);
    text += "\n" + table_of(keys);
  }
  return text;
}

}  // namespace trireme::config
