// SPDX-License-Identifier: Apache-2.0
#include "train/checkpointing/resume_changes.h"

#include <fmt/format.h>

#include "base/text/json.h"
#include "config/config.h"

namespace trireme::train {
namespace {

// Appends the values that differ; objects with the same name are compared key by key.
void add_changes(const std::string& key, const base::Json& was, const base::Json& is,
                 std::string& changes) {
  if (was == is) return;
  const auto name_of = [](const base::Json& value) {
    return value.is_object() && value.contains("name") ? value.at("name") : base::Json();
  };
  if (was.is_object() && is.is_object() && name_of(was) == name_of(is)) {
    for (const auto& [inner, value] : is.items()) {
      add_changes(key + "." + inner, was.contains(inner) ? was.at(inner) : base::Json(), value,
                  changes);
    }
    return;
  }
  const auto text = [&](const base::Json& value) {
    return name_of(value).is_null() ? value.dump() : name_of(value).dump();
  };
  changes +=
      fmt::format("{}{} was {}, is {}", changes.empty() ? "" : "; ", key, text(was), text(is));
}

}  // namespace

std::string changes_of_identity(const base::Json& was, const base::Json& is) {
  std::string changes;
  const auto value_of = [](const base::Json& plan, const char* key) {
    if (plan.contains(key)) return plan.at(key);
    const auto layout = plan.find("layout");
    return layout != plan.end() && layout->contains(key) ? layout->at(key) : base::Json();
  };
  for (const char* key :
       {"logical_dp", "reduce", "reduce_dtype", "recipe", "optimizer", "sequence_parallel"}) {
    add_changes(key, value_of(was, key), value_of(is, key), changes);
  }
  // Plans before tiles of the feed-forward have none.
  const auto tiles_of = [&](const base::Json& plan) {
    const base::Json rows = value_of(plan, "ffn_rows");
    return rows.is_null() ? base::Json(0) : rows;
  };
  add_changes("ffn_rows", tiles_of(was), tiles_of(is), changes);
  const auto ranks_of = [&](const base::Json& plan, const char* axis) {
    const base::Json mesh = value_of(plan, "mesh");
    return mesh.is_object() && mesh.contains(axis) ? mesh.at(axis) : base::Json();
  };
  for (const char* axis : {"tp", "cp"}) {
    add_changes(axis, ranks_of(was, axis), ranks_of(is, axis), changes);
  }
  if (ranks_of(was, "cp") == ranks_of(is, "cp") && ranks_of(is, "cp") != base::Json(1)) {
    for (const char* key : {"context_kind", "context_slices", "ulysses"}) {
      add_changes(key, value_of(was, key), value_of(is, key), changes);
    }
  }
  return changes;
}

void list_changes(const std::string& path, const base::Json& was, const base::Json& is,
                  std::vector<std::string>& lines) {
  if (was == is) return;
  if (was.is_object() && is.is_object()) {
    for (const auto& [key, value] : is.items()) {
      list_changes(path.empty() ? key : path + "." + key,
                   was.contains(key) ? was.at(key) : base::Json(), value, lines);
    }
    for (const auto& [key, value] : was.items()) {
      if (!is.contains(key)) {
        list_changes(path.empty() ? key : path + "." + key, value, base::Json(), lines);
      }
    }
    return;
  }
  lines.push_back(fmt::format("{}: was {}, is {}", path, was.dump(), is.dump()));
}

base::Json without_added_keys(const base::Json& was, const base::Json& is,
                              const base::Json& defaults) {
  if (!was.is_object() || !is.is_object() || !defaults.is_object()) return is;
  base::Json known = base::Json::object();
  for (const auto& [key, value] : is.items()) {
    const bool is_default = defaults.contains(key) && defaults.at(key) == value;
    if (!was.contains(key) && is_default) continue;
    known[key] = was.contains(key) && defaults.contains(key)
                     ? without_added_keys(was.at(key), value, defaults.at(key))
                     : value;
  }
  return known;
}

StateChanges changes_of_state(const base::Json& saved, const base::Json& own) {
  const auto value_of = [&saved](const char* key) {
    return saved.contains(key) ? saved.at(key) : base::Json();
  };
  StateChanges changes;
  if (saved.contains("data")) {
    list_changes("data", value_of("data"), own.at("data"), changes.data);
  } else {  // written by a build that did not record the data
    for (const char* key : {"seed", "seq_len"}) {
      list_changes(key, value_of(key), own.at(key), changes.data);
    }
  }
  list_changes("samples_a_step", value_of("samples_a_step"), own.at("samples_a_step"),
               changes.batch);
  changes.has_config = saved.contains("config");
  if (changes.has_config) {
    const base::Json was = value_of("config");
    base::Json is = without_added_keys(was, own.at("config"), config::to_json(config::Config{}));
    // Written by a build without names of runs.
    if (was.contains("job") && !was.at("job").contains("name")) is.at("job").erase("name");
    list_changes("", was, is, changes.config);
  }
  return changes;
}

}  // namespace trireme::train
