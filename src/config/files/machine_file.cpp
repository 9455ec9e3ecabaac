// SPDX-License-Identifier: Apache-2.0
#include "config/files/machine_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "base/error.h"
#include "base/text/json.h"
#include "config/apply.h"
#include "config/document.h"
#include "config/files/machine_keys.h"
#include "config/files/sourced_file.h"
#include "config/spelling.h"

namespace trireme::config {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view how_to_describe =
    "describe another machine in a new file (machines/README.md), or measure it by running "
    "trireme calibrate --out FILE.toml on it";

constexpr SourcedKind machine_kind{"machine", "Machines", how_to_describe};

// Refuses files of another format first, because all their keys would be unknown.
void check_format(const std::vector<Entry>& entries) {
  for (const Entry& entry : entries) {
    if (!entry.section.empty() || entry.is_section_start || entry.key != "format") continue;
    const auto* format = std::get_if<int64_t>(&entry.value);
    if (format == nullptr || *format == machine_format) return;
    throw base::ConfigError(fmt::format(
        "{}: format = {}: a machine file for planning has format = {}{}; {}", entry.where, *format,
        machine_format,
        *format == 1 ? ", and format = 1 contains measurements of trireme bench gpu" : "",
        how_to_describe));
  }
}

void check_rules(const spec::Machine& m, Report& report) {
  const spec::Processor& p = m.processor;
  report.demand(p.reserved_bytes < p.memory_bytes,
                {"processor.reserved_gigabytes", "processor.memory_gigabytes"},
                "processor.reserved_gigabytes: must be below memory_gigabytes");
  report.demand(p.fp32_flops > 0 || p.bf16_flops > 0,
                {"processor.fp32_tflops", "processor.bf16_tflops"},
                "processor.fp32_tflops and bf16_tflops are both 0: one of them must be above 0");
  // Keys that another key makes necessary.
  const auto needs = [&](bool needed, const std::string& because, const std::string& path) {
    if (!needed || report.was_given(path)) return;
    report.blame({because}, fmt::format("{}: required with this {}, but not given", path, because));
  };
  needs(p.fp8_flops > 0, "processor.fp8_tflops", "processor.fp8_reach");
  needs(p.fp4_flops > 0, "processor.fp4_tflops", "processor.fp4_reach");
  const bool has_links = m.domain.size > 1;
  needs(has_links, "domain.size", "domain.link_gigabytes_per_second");
  needs(has_links, "domain.size", "domain.latency_microseconds");
  needs(has_links, "domain.size", "domain.reach");
  const bool has_network = m.network.link.bytes_per_second > 0;
  needs(has_network, "network.link_gigabytes_per_second", "network.latency_microseconds");
  needs(has_network, "network.link_gigabytes_per_second", "network.reach");
}

std::string toml_string(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      result += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      result += c;
    }
  }
  return result + '"';
}

std::string toml_text(const Key& key, int digits) {
  if (auto* const* number = std::get_if<double*>(&key.field)) {
    return fmt::format("{:.{}g}", **number, digits);
  }
  if (auto* const* text = std::get_if<std::string*>(&key.field)) return toml_string(**text);
  return value_text(key);
}

spec::Machine machine_from_entries(const std::vector<Entry>& entries, const std::string& file,
                                   const std::string& default_name) {
  check_format(entries);
  MachineKeys keys{spec::Machine{}};
  Report report;
  check_quoted(entries, "processor.units", report);
  if (report.empty()) apply(entries, keys.keys(), file, report);
  spec::Machine machine = keys.machine();
  if (machine.source.empty()) check_sources(machine.sources, keys.keys(), report);
  check_rules(machine, report);
  report.throw_if_any(file);
  if (machine.name.empty()) machine.name = default_name;
  return machine;
}

}  // namespace

spec::Machine machine_from_file(const std::string& path_or_name,
                                const std::vector<fs::path>& folders) {
  const fs::path path = find_sourced(machine_kind, path_or_name, folders);
  return machine_from_entries(entries_of_toml(read_text(path), path.string()), path.string(),
                              path.stem().string());
}

spec::Machine machine_from_text(const std::string& text, const std::string& where) {
  return machine_from_entries(entries_of_toml(text, where), where, where);
}

std::vector<std::string> machine_names(const std::vector<fs::path>& folders) {
  return toml_names(folders);
}

std::string machine_text(const spec::Machine& machine, std::string_view comment, int digits) {
  MachineKeys defaults{spec::Machine{}};
  MachineKeys keys{machine};
  std::string text;
  std::istringstream lines{std::string(comment)};
  for (std::string line; std::getline(lines, line);) text += fmt::format("# {}\n", line);
  std::string_view section;
  for (const Key& key : keys.keys()) {
    const std::string value = toml_text(key, digits);
    if (key.section == "sources") {
      if (value == "\"\"") continue;
    } else if (!key.is_required && !machine.sources.contains(key.path())) {
      const auto same = [&](const Key& one) { return one.path() == key.path(); };
      const auto& all = defaults.keys();
      if (toml_text(*std::find_if(all.begin(), all.end(), same), digits) == value) continue;
    }
    if (key.section != section) text += fmt::format("\n[{}]\n", section = key.section);
    const bool is_quoted = key.section == "sources";
    text +=
        fmt::format("{} = {}\n", is_quoted ? toml_string(key.name) : std::string(key.name), value);
  }
  return text;
}

base::Json machine_json(const spec::Machine& machine) {
  const MachineKeys keys{machine};
  base::Json json;
  for (const Key& key : keys.keys()) {
    const base::Json value = value_json(key);
    if (key.section == "sources" && value == "") continue;
    base::Json& place = key.section.empty() ? json : json[std::string(key.section)];
    place[std::string(key.name)] = value;
  }
  return json;
}

std::string machine_keys_page() {
  const MachineKeys keys{spec::Machine{}};
  return keys_page(keys.keys());
}

}  // namespace trireme::config
