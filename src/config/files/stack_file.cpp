// SPDX-License-Identifier: Apache-2.0
#include "config/files/stack_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "config/apply.h"
#include "config/document.h"
#include "config/files/machine_keys.h"
#include "config/files/sourced_file.h"
#include "config/files/stack_keys.h"
#include "config/spelling.h"

namespace trireme::config {
namespace {

namespace fs = std::filesystem;

constexpr SourcedKind stack_kind{"stack", "Stacks",
                                 "describe another program in a new file (stacks/README.md)"};

void check_stack_rules(const spec::Stack& stack, const std::vector<Key>& keys, Report& report) {
  for (const Key& key : keys) {
    const std::string path = key.path();
    if (!stack.engine || key.section != "memory" || !report.was_given(path)) continue;
    report.blame({path}, fmt::format("{}: not allowed with engine = true, whose memory is that of "
                                     "Trireme's layers; remove the key, or engine = true",
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
                            "gradients are not summed in a longer type than they are stored in",
                            stack.reduce_bytes, stack.grad_bytes));
}

spec::Stack stack_from_entries(const std::vector<Entry>& entries, const std::string& file,
                               const std::string& default_name) {
  spec::Stack blank;
  blank.selective = spec::SelectiveRecompute::products;
  StackKeys keys{blank};
  Report report;
  check_quoted(entries, "compute.gemm", report);
  if (report.empty()) apply(entries, keys.keys(), file, report);
  spec::Stack stack = keys.stack();
  if (stack.engine && !report.was_given("policies.selective")) {
    stack.selective = spec::SelectiveRecompute::engine;
  }
  if (stack.source.empty()) check_sources(stack.sources, keys.keys(), report);
  check_stack_rules(stack, keys.keys(), report);
  report.throw_if_any(file);
  if (stack.name.empty()) stack.name = default_name;
  return stack;
}

}  // namespace

spec::Stack stack_from_file(const std::string& path_or_name, const std::vector<fs::path>& folders) {
  const fs::path path = find_sourced(stack_kind, path_or_name, folders);
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
  const StackKeys keys{spec::Stack{}};
  return keys_page(keys.keys());
}

}  // namespace trireme::config
