// SPDX-License-Identifier: Apache-2.0
#include "config/files/sourced_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "config/document.h"
#include "config/spelling.h"

namespace trireme::config {

namespace fs = std::filesystem;

fs::path find_sourced(const SourcedKind& kind, const std::string& path_or_name,
                      const std::vector<fs::path>& folders) {
  fs::path path(path_or_name);
  if (path_or_name.find('/') != std::string::npos || path.extension() == ".toml") return path;
  for (const fs::path& folder : folders) {
    std::error_code ignored;
    path = folder / (path_or_name + ".toml");
    if (fs::is_regular_file(path, ignored)) return path;
  }
  const std::vector<std::string> names = toml_names(folders);
  const std::vector<std::string_view> views(names.begin(), names.end());
  if (const auto same = in_any_case(path_or_name, views); same && *same != path_or_name) {
    return find_sourced(kind, std::string(*same), folders);
  }
  const auto best = nearest(path_or_name, views);
  std::string text = fmt::format("no {} '{}'", kind.one, path_or_name);
  if (best) text += fmt::format("; did you mean '{}'?", *best);
  text += names.empty()
              ? fmt::format("; no {} files were found", kind.one)
              : fmt::format("{} {} are {}", best ? "" : ".", kind.many, fmt::join(names, ", "));
  throw base::ConfigError(fmt::format("{}; {}", text, kind.how));
}

bool has_source(const Key& key) {
  return !std::holds_alternative<std::string*>(key.field) && key.path() != "format";
}

void add_sources(std::vector<Key>& keys, std::map<std::string, std::string>& sources) {
  for (const Key& key : keys) {
    if (has_source(key)) (void)sources[key.path()];
  }
  // Values of a map have stable addresses, so keys can point to them.
  for (auto& [path, source] : sources) {
    keys.push_back({.section = "sources",
                    .name = path,
                    .field = &source,
                    .range = {},
                    .choices = {},
                    .help = "source of this key's number"});
  }
}

void check_quoted(const std::vector<Entry>& entries, std::string_view example, Report& report) {
  for (const Entry& entry : entries) {
    if (entry.section != "sources" || !std::holds_alternative<Foreign>(entry.value)) continue;
    report.add(entry.where,
               fmt::format("sources.{}: keys of [sources] must be quoted, as \"{}\" = \"...\"",
                           entry.key, example));
  }
}

void check_sources(const std::map<std::string, std::string>& sources, const std::vector<Key>& keys,
                   Report& report) {
  for (const Key& key : keys) {
    const std::string path = key.path();
    if (key.section == "sources" || !has_source(key) || !report.was_given(path)) continue;
    report.demand(sources.contains(path), {path},
                  fmt::format("{}: no source; add the source of the number to [sources] "
                              "(\"{}\" = \"...\"), or give one source for the whole file",
                              path, path));
  }
}

std::string keys_page(const std::vector<Key>& keys) {
  std::string text = "| key | must be | meaning |\n|---|---|---|\n";
  for (const Key& key : keys) {
    if (key.section == "sources") break;
    const std::string rule = rule_text(key);
    text += fmt::format("| `{}`{} | {}{}{} | {} |\n", key.path(), key.is_required ? " *" : "",
                        type_name(key), rule.empty() ? "" : ", ", rule, key.help);
  }
  return text;
}

}  // namespace trireme::config
