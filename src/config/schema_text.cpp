// SPDX-License-Identifier: Apache-2.0
// The schema as text: help for the terminal, and the documentation page.
#include <fmt/format.h>

#include "base/text/json.h"
#include "config/files/model_file.h"
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

std::string key_text(const Key& key) {
  const std::string rule = rule_text(key);
  return fmt::format("  {} = {}  ({}{}{})\n      {}\n", key.name, value_text(key), type_name(key),
                     rule.empty() ? "" : ", ", rule, key.help);
}

// Returns the consecutive keys of one section.
std::vector<std::vector<Key>> by_section(const std::vector<Key>& keys) {
  std::vector<std::vector<Key>> groups;
  for (const Key& key : keys) {
    if (groups.empty() || groups.back().front().section != key.section) groups.emplace_back();
    groups.back().push_back(key);
  }
  return groups;
}

// Lists the files of configs/models; a test compares.
std::string shipped_models_text() {
  std::string text =
      "| models of `configs/models` | |\n|---|---|\n"
      "| `kjv-llama`, `gpt2-10m`, `llama-11m` | small, for first runs and tests; the first two "
      "have "
      "bytes as tokens |\n"
      "| `long-llama` | tiny, over bytes, for sequences of up to a million tokens |\n"
      "| `gpt2-124m`, `gpt2-355m`, `gpt2-774m`, `gpt2-1.5b`, `gpt3-175b` | GPT-2 and the sizes of "
      "GPT-3 |\n"
      "| `llama2-7b`, `llama2-13b` | Llama 2 |\n"
      "| `llama3-70b` | Llama 3 |\n"
      "| `llama3.1-8b`, `llama3.1-70b`, `llama3.1-405b` | Llama 3.1, with its RoPE scaling |\n"
      "| `llama3.2-1b`, `llama3.2-3b` | Llama 3.2 |\n"
      "| `llama3.1-8b-4l`, `llama3.2-1b-32k` | four layers of the 8B; the 1B with a vocabulary of "
      "32,768 |\n"
      "| `qwen2-0.5b`, `qwen3-0.6b` | Qwen |\n"
      "| `kjv-moe` | a small mixture of experts over bytes, of the active size of `kjv-llama` |\n"
      "| `mixtral-8x7b`, `mixtral-8x22b`, `qwen3-30b-a3b`, `qwen3-235b-a22b`, `olmoe-1b-7b` | "
      "mixtures of experts |\n"
      "| `olmoe-8l`, `qwen3-30b-a3b-6l`, `mixtral-2l` | some layers of these sizes, for "
      "benchmarks; without q/k norms, and scores are not renormalized |\n\n"
      "Names of earlier releases are accepted:";
  for (const EarlierName& earlier : earlier_model_names()) {
    text += fmt::format("{} `{}` (now `{}`)", text.ends_with(':') ? "" : ",", earlier.name,
                        earlier.now);
  }
  return text + ".\n";
}

}  // namespace

std::string help_text() {
  Config defaults;
  std::string text;
  for (const std::vector<Key>& keys : by_section(keys_of(defaults))) {
    text += fmt::format("[{}]\n", keys.front().section);
    for (const Key& key : keys) text += key_text(key);
  }
  for (const List& list : lists()) {
    list.resize(defaults, 1);
    text += fmt::format("[[{}]]\n", list.name);
    for (const Key& key : list.keys(defaults, 0)) text += key_text(key);
    list.resize(defaults, 0);
  }
  return text;
}

base::Json help_json() {
  Config defaults;
  base::Json list = base::Json::array();
  for (const Key& key : keys_of(defaults)) {
    list.push_back({{"key", key.path()},
                    {"type", std::string(type_name(key))},
                    {"default", value_json(key)},
                    {"allowed", rule_text(key)},
                    {"meaning", std::string(key.help)}});
  }
  for (const List& of_tables : lists()) {
    of_tables.resize(defaults, 1);
    for (const Key& key : of_tables.keys(defaults, 0)) {
      list.push_back({{"key", fmt::format("{}[].{}", of_tables.name, key.name)},
                      {"type", std::string(type_name(key))},
                      {"default", value_json(key)},
                      {"allowed", rule_text(key)},
                      {"meaning", std::string(key.help)}});
    }
    of_tables.resize(defaults, 0);
  }
  return list;
}

std::string configuration_page() {
  std::string text =
      "# Configuration\n\n"
      "This page is generated from the schema in `src/config/schema.cpp` and "
      "`src/config/files/model_file.cpp`; a test compares it.\n\n"
      "A run is configured by a TOML file with the sections below; every key has a default. Names "
      "are those of TorchTitan if the meaning is the same. A key is overridden on the command "
      "line with `--section.key=value`, `--section.key value`, or, to switch a boolean on, "
      "`--section.key`. All mistakes are reported at once: unknown sections and keys with the "
      "nearest spelling, wrong types, broken rules with the nearest legal values. `trireme "
      "init` writes a first file for your data, `trireme convert-config` one from the settings of "
      "TorchTitan or Megatron-LM (`docs/coming-from-elsewhere.md`).\n\n"
      "The resolved configuration (defaults filled, -1 solved, the model's sizes included) is "
      "written to the run's folder as JSON. It is accepted in place of the TOML file and needs no "
      "model file.\n\n"
      "Instead of a file, `-` and `/dev/stdin` read standard input, and a pipe, as "
      "`<(generate.sh)`, is read once; errors name `<stdin>`. `trireme launch -` passes it to "
      "its ranks; under mpirun or torchrun a file is needed, because their processes do not have "
      "the standard input. Without a file `--model NAME --data FILE` is sufficient. "
      "Element types have several spellings: `float32`, `fp32` and `f32`, `bfloat16` and "
      "`bf16`, `uint16` and `u16`; `run.json` uses one of them.\n\n"
      "`model.name` without a slash is searched as `<name>.toml` in the folder `models` beside "
      "the configuration file, then in the installed model folders. A section `[model.dims]` with "
      "the keys of a model file (`[model.dims.rope_scaling]`, `[model.dims.moe]`) describes a "
      "model "
      "that has no file; `model.name` is then only its name.\n";
  Config defaults;
  for (const std::vector<Key>& keys : by_section(keys_of(defaults))) {
    text += fmt::format("\n## [{}]\n\n{}", keys.front().section, table_of(keys));
  }
  for (const List& list : lists()) {
    list.resize(defaults, 1);
    text += fmt::format("\n## [[{}]]\n\n{}\n\n{}", list.name, list.help,
                        table_of(list.keys(defaults, 0)));
    list.resize(defaults, 0);
  }
  text +=
      "\n# Model files\n\n"
      "A model is a separate TOML file, as those in `configs/models/`, or a Hugging Face "
      "`config.json` of type gpt2, llama, mistral, qwen2, qwen3, mixtral, qwen3_moe or olmoe. A "
      "mistral is read as the equivalent Llama for sequences up to its sliding window.\n\n" +
      shipped_models_text();
  ModelKeys defaults_of_model;
  for (const std::vector<Key>& keys : by_section(keys_of(defaults_of_model))) {
    const std::string_view section = keys.front().section;
    if (!section.empty()) text += fmt::format("\n## [{}], optional, llama only\n", section);
    text += "\n" + table_of(keys);
  }
  return text;
}

}  // namespace trireme::config
