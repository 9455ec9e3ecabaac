// SPDX-License-Identifier: Apache-2.0
#include "config/stack_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "config/apply.h"
#include "config/document.h"
#include "config/machine_keys.h"
#include "config/spelling.h"
#include "config/stack_keys.h"

namespace trireme::config {
namespace {

namespace fs = std::filesystem;

std::string no_stack(const std::string& name, const std::vector<fs::path>& folders) {
  const std::vector<std::string> names = stack_names(folders);
  const std::vector<std::string_view> views(names.begin(), names.end());
  const auto best = nearest(name, views);
  std::string text = fmt::format("no stack '{}'", name);
  if (best) text += fmt::format("; did you mean '{}'?", *best);
  text += names.empty() ? "; no stack files were found"
                        : fmt::format("{} Stacks are {}", best ? "" : ".", fmt::join(names, ", "));
  return text + "; another program is described in a file of its own (stacks/README.md)";
}

void check_stack_sources(const spec::Stack& stack, const std::vector<Key>& keys, Report& report) {
  if (!stack.source.empty()) return;
  for (const Key& key : keys) {
    const std::string path = key.path();
    if (key.section == "sources" || !has_source(key) || !report.was_given(path)) continue;
    report.demand(stack.sources.contains(path), {path},
                  fmt::format("{}: no source; say in [sources] where the number is from "
                              "(\"{}\" = \"...\"), or give one source for the whole file",
                              path, path));
  }
}

void check_stack_rules(const spec::Stack& stack, const std::vector<Key>& keys, Report& report) {
  for (const Key& key : keys) {
    const std::string path = key.path();
    if (!stack.engine || key.section != "memory" || !report.was_given(path)) continue;
    report.blame({path}, fmt::format("{}: not allowed with engine = true, whose memory is that of "
                                     "Trireme's own layers; remove the key, or engine = true",
                                     path));
  }
  report.demand(stack.engine || stack.selective != spec::SelectiveRecompute::engine ||
                    !report.was_given("policies.selective"),
                {"policies.selective"},
                "policies.selective = \"engine\" needs engine = true; other programs have "
                "\"attention\", \"activation\" or \"products\"");
  report.demand(stack.reduce_bytes <= stack.grad_bytes,
                {"policies.reduce_bytes", "policies.grad_bytes"},
                fmt::format("policies.reduce_bytes = {} is above policies.grad_bytes = {}: "
                            "gradients are not summed in a longer type than they are kept in",
                            stack.reduce_bytes, stack.grad_bytes));
}

spec::Stack stack_from_entries(const std::vector<Entry>& entries, const std::string& file,
                               const std::string& default_name) {
  spec::Stack blank;
  blank.selective = spec::SelectiveRecompute::products;
  StackKeys keys{blank};
  Report report;
  for (const Entry& entry : entries) {
    if (entry.section == "sources" && std::holds_alternative<Foreign>(entry.value)) {
      report.add(entry.where, fmt::format("sources.{}: keys of [sources] stand in quotes, as "
                                          "\"compute.gemm\" = \"...\"",
                                          entry.key));
    }
  }
  if (report.empty()) apply(entries, keys.keys(), file, report);
  spec::Stack stack = keys.stack();
  if (stack.engine && !report.was_given("policies.selective")) {
    stack.selective = spec::SelectiveRecompute::engine;
  }
  check_stack_sources(stack, keys.keys(), report);
  check_stack_rules(stack, keys.keys(), report);
  report.throw_if_any(file);
  if (stack.name.empty()) stack.name = default_name;
  return stack;
}

}  // namespace

spec::Stack stack_from_file(const std::string& path_or_name, const std::vector<fs::path>& folders) {
  fs::path path(path_or_name);
  if (path_or_name.find('/') == std::string::npos && path.extension() != ".toml") {
    const auto has_file = [&](const fs::path& folder) {
      std::error_code ignored;
      path = folder / (path_or_name + ".toml");
      return fs::is_regular_file(path, ignored);
    };
    if (std::none_of(folders.begin(), folders.end(), has_file)) {
      throw base::ConfigError(no_stack(path_or_name, folders));
    }
  }
  return stack_from_entries(entries_of_toml(read_text(path), path.string()), path.string(),
                            path.stem().string());
}

spec::Stack stack_from_text(const std::string& text, const std::string& where) {
  return stack_from_entries(entries_of_toml(text, where), where, where);
}

std::vector<std::string> stack_names(const std::vector<fs::path>& folders) {
  return toml_names(folders);
}

std::string stack_keys_page() {
  StackKeys keys{spec::Stack{}};
  std::string text = "| key | must be | meaning |\n|---|---|---|\n";
  for (const Key& key : keys.keys()) {
    if (key.section == "sources") break;
    const std::string rule = rule_text(key);
    text += fmt::format("| `{}`{} | {}{}{} | {} |\n", key.path(), key.is_required ? " *" : "",
                        type_name(key), rule.empty() ? "" : ", ", rule, key.help);
  }
  return text;
}

}  // namespace trireme::config
