// SPDX-License-Identifier: Apache-2.0
#include "config/lists/phases.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "config/layout.h"
#include "config/schema.h"
#include "spec/layout/rules.h"

namespace trireme::config {
namespace {

namespace fs = std::filesystem;

// "runs/web.bin" is "web".
std::string name_of_path(const std::string& path) {
  const fs::path last = fs::path(path).lexically_normal();
  const fs::path name = last.has_filename() ? last.filename() : last.parent_path().filename();
  return name.extension() == ".bin" || name.extension() == ".idx" ? name.stem().string()
                                                                  : name.string();
}

// Names that are not given: of the path, with a number if another set has the same.
template <typename Set>
void fill_in_names(std::vector<Set>& sets) {
  std::set<std::string> taken;
  for (const Set& set : sets) taken.insert(set.name);
  for (Set& set : sets) {
    if (!set.name.empty()) continue;
    const std::string name = name_of_path(set.path);
    set.name = name;
    for (int i = 2; taken.contains(set.name) || set.name.empty(); ++i) {
      set.name = fmt::format("{}-{}", name, i);
    }
    taken.insert(set.name);
  }
}

PhaseSettings first_phase(const Config& c) {
  PhaseSettings phase{.name = "phase 1",
                      .from_step = 1,
                      .seq_len = c.training.seq_len,
                      .global_batch_size = c.training.global_batch_size,
                      .local_batch_size = c.training.local_batch_size};
  for (const Dataset& set : dataset_list(c)) phase.weights.push_back(set.weight);
  return phase;
}

bool begins_run(const Phase& phase) { return phase.from_step == 1 || phase.from_tokens == 0; }

// Changes the fields that a [[phase]] gives.
void change(PhaseSettings& settings, const Phase& phase, const std::vector<Dataset>& sets) {
  settings.name = phase.name;
  settings.from_step = phase.from_step;
  settings.from_tokens = phase.from_tokens;
  if (phase.seq_len != -1) settings.seq_len = phase.seq_len;
  if (phase.global_batch_size != -1) settings.global_batch_size = phase.global_batch_size;
  if (phase.local_batch_size != -1) settings.local_batch_size = phase.local_batch_size;
  if (phase.lr != -1) settings.lr = phase.lr;
  if (phase.lr_factor != -1) settings.lr_factor = phase.lr_factor;
  if (phase.weights.empty()) return;
  for (size_t i = 0; i < sets.size(); ++i) {
    const auto given = std::ranges::find(phase.weights, sets[i].name,
                                         [](const auto& weight) { return weight.first; });
    settings.weights[i] = given == phase.weights.end() ? 0 : given->second;
  }
}

void check_names(const std::vector<std::string>& names, std::string_view list, Report& report) {
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string key = element_section(list, i) + ".name";
    const bool is_twice = std::find(names.begin(), names.begin() + static_cast<ptrdiff_t>(i),
                                    names[i]) != names.begin() + static_cast<ptrdiff_t>(i);
    report.demand(
        !is_twice, {key},
        fmt::format("{} = \"{}\": another element of [[{}]] has this name", key, names[i], list));
    const bool is_legal =
        !names[i].empty() && names[i].size() <= 128 && std::ranges::none_of(names[i], [](char c) {
          return static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '/';
        });
    report.demand(is_legal, {key},
                  fmt::format("{}: must have 1 to 128 bytes, no slash and no control character, "
                              "because metrics are named after it",
                              key));
  }
}

template <typename Set>
std::vector<std::string> names_of(const std::vector<Set>& sets) {
  std::vector<std::string> names;
  for (const Set& set : sets) names.push_back(set.name);
  return names;
}

void check_datasets(const Config& c, Report& report) {
  const std::vector<Dataset>& sets = c.training.dataset;
  if (!sets.empty()) {
    const Training fresh;
    const auto demand_default = [&](const char* key, const std::string& value,
                                    const std::string& initial) {
      report.demand(value == initial, {key},
                    fmt::format("{} = \"{}\": [[training.dataset]] is given, too; give one of both",
                                key, value));
    };
    demand_default("training.dataset_path", c.training.dataset_path, fresh.dataset_path);
    demand_default("training.dataset_format", c.training.dataset_format, fresh.dataset_format);
    demand_default("training.dataset_dtype", c.training.dataset_dtype, fresh.dataset_dtype);
    const bool has_weight =
        std::ranges::any_of(sets, [](const Dataset& d) { return d.weight > 0; });
    const bool is_replaced =
        !c.phase.empty() && begins_run(c.phase.front()) && !c.phase.front().weights.empty();
    report.demand(has_weight || is_replaced, {"training.dataset[0].weight"},
                  "training.dataset: all weights are 0; at least one must be above 0");
  }
  check_names(names_of(sets), "training.dataset", report);
  if (!c.validation.dataset.empty()) {
    report.demand(c.validation.dataset_path.empty(), {"validation.dataset_path"},
                  "validation.dataset_path: [[validation.dataset]] is given, too; give one of "
                  "both");
  }
  check_names(names_of(c.validation.dataset), "validation.dataset", report);
}

// The rules of one [[phase]] by itself.
void check_phase(const Config& c, size_t i, Report& report) {
  const Phase& phase = c.phase[i];
  const std::string section = element_section("phase", i);
  const auto key = [&](const char* name) { return fmt::format("{}.{}", section, name); };
  const bool has_step = phase.from_step != -1, has_tokens = phase.from_tokens != -1;
  report.demand(has_step != has_tokens, {key("from_step"), key("from_tokens")},
                fmt::format("{}: give {} of from_step and from_tokens", section,
                            has_step ? "only one" : "one"));
  report.demand(
      i == 0 || !begins_run(phase), {key("from_step"), key("from_tokens")},
      fmt::format("{}: only the first [[phase]] can begin at step 1 or 0 tokens", section));
  const std::vector<Dataset> sets = dataset_list(c);
  double sum = 0;
  for (const auto& [name, weight] : phase.weights) {
    sum += weight;
    const bool is_known =
        std::ranges::find(sets, name, [](const Dataset& d) { return d.name; }) != sets.end();
    report.demand(is_known, {key("weights")},
                  fmt::format("{}: no [[training.dataset]] has the name '{}'; names are {}",
                              key("weights"), name, fmt::join(names_of(sets), ", ")));
  }
  report.demand(phase.weights.empty() || sum > 0, {key("weights")},
                fmt::format("{}: all weights are 0; at least one must be above 0", key("weights")));
  report.demand(phase.lr <= 0 || phase.lr_factor == -1, {key("lr_factor"), key("lr")},
                fmt::format("{}: lr is a constant rate, so lr_factor has no effect; give one of "
                            "both",
                            section));
}

// The rules of the layout, with the sizes of a phase.
void check_phase_layout(const Config& c, const PhaseSettings& phase, size_t element,
                        Report& report) {
  const Config changed = with_phase(c, phase);
  const spec::ModelSizes sizes = spec::sizes_of(c.dims);
  const std::string section = element_section("phase", element);
  spec::LayoutNames names = layout_paths();
  for (const spec::LayoutKey one :
       {spec::LayoutKey::micro_batch, spec::LayoutKey::global_batch, spec::LayoutKey::seq_len}) {
    std::string& name = names[static_cast<size_t>(one)];
    name = section + name.substr(name.find('.'));
  }
  const spec::Settled settled =
      spec::settle(sizes, workload_of(changed), 0, layout_of(changed), spec::Whose::engine, names);
  for (const spec::Broken& broken : settled.broken) {
    std::vector<std::string> keys;
    for (const spec::LayoutKey one : broken.rule->keys) {
      keys.push_back(names[static_cast<size_t>(one)]);
    }
    report.blame(keys, spec::to_text(broken));
  }
}

void check_phases(const Config& c, Report& report) {
  for (size_t i = 0; i < c.phase.size(); ++i) check_phase(c, i, report);
  check_names(names_of(c.phase), "phase", report);
  if (c.phase.empty() || !report.empty() || report.is_bad("model.dims")) return;
  const std::vector<PhaseSettings> phases = phases_of(c);
  const size_t added = phases.size() - c.phase.size();  // the first one, if none replaces it
  int64_t last_step = 1;
  std::set<int64_t> lengths;
  for (size_t i = 0; i < phases.size(); ++i) {
    lengths.insert(phases[i].seq_len);
    if (i < added) continue;
    const std::string section = element_section("phase", i - added);
    if (phases[i].from_step != -1) {
      report.demand(i == 0 || phases[i].from_step > last_step, {section + ".from_step"},
                    fmt::format("{}.from_step = {}: must be above {}, the first step of the phase "
                                "before it",
                                section, phases[i].from_step, last_step));
      last_step = phases[i].from_step;
    }
    check_phase_layout(c, phases[i], i - added, report);
  }
  for (const int64_t length : lengths) {
    report.demand(*lengths.rbegin() % length == 0, {"phase[0].seq_len", "training.seq_len"},
                  fmt::format("phase: a seq_len of {} does not divide the largest one, {}; a data "
                              "set could not continue at the same token",
                              length, *lengths.rbegin()));
  }
  report.demand(lengths.size() == 1 || c.training.packing == "none",
                {"training.packing", "phase[0].seq_len"},
                "training.packing = \"best_fit\": all phases must have one seq_len, because "
                "documents are packed for it");
}

}  // namespace

std::vector<Dataset> dataset_list(const Config& c) {
  if (!c.training.dataset.empty()) return c.training.dataset;
  return {{.name = name_of_path(c.training.dataset_path),
           .path = c.training.dataset_path,
           .format = c.training.dataset_format,
           .dtype = c.training.dataset_dtype}};
}

std::vector<ValidationDataset> validation_list(const Config& c) {
  if (!c.validation.dataset.empty() || c.validation.dataset_path.empty()) {
    return c.validation.dataset;
  }
  // Written when one format served both data sets.
  return {{.name = name_of_path(c.validation.dataset_path),
           .path = c.validation.dataset_path,
           .format = c.training.dataset_format,
           .dtype = c.training.dataset_dtype}};
}

std::vector<PhaseSettings> phases_of(const Config& c) {
  const std::vector<Dataset> sets = dataset_list(c);
  std::vector<PhaseSettings> phases;
  PhaseSettings current = first_phase(c);
  if (c.phase.empty() || !begins_run(c.phase.front())) phases.push_back(current);
  for (const Phase& phase : c.phase) {
    change(current, phase, sets);
    phases.push_back(current);
  }
  return phases;
}

Config with_phase(Config c, const PhaseSettings& phase) {
  c.training.seq_len = phase.seq_len;
  c.training.global_batch_size = phase.global_batch_size;
  c.training.local_batch_size = phase.local_batch_size;
  return c;
}

void solve_lists(Config& c) {
  fill_in_names(c.training.dataset);
  fill_in_names(c.validation.dataset);
  const size_t first = c.phase.empty() || begins_run(c.phase.front()) ? 1 : 2;
  for (size_t i = 0; i < c.phase.size(); ++i) {
    if (c.phase[i].name.empty()) c.phase[i].name = fmt::format("phase {}", first + i);
  }
}

void check_lists(const Config& c, Report& report) {
  check_datasets(c, report);
  check_phases(c, report);
}

}  // namespace trireme::config
