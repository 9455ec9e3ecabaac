// SPDX-License-Identifier: Apache-2.0
#include "train/checkpointing/resume_changes.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/dtype.h"
#include "base/text/json.h"
#include "config/config.h"
#include "schedule/catalogue.h"
#include "spec/parallel/data_parallel.h"

namespace trireme::train {
namespace {

// Collects "name was X, is Y" of values that differ.
class ChangeText {
 public:
  template <typename T>
  void compare(const char* name, const T& was, const T& is) {
    if (was == is) return;
    text_ +=
        fmt::format("{}{} was {}, is {}", text_.empty() ? "" : "; ", name, shown(was), shown(is));
  }
  const std::string& text() const { return text_; }

 private:
  static std::string shown(int64_t value) { return fmt::format("{}", value); }
  static std::string shown(bool value) { return value ? "true" : "false"; }
  static std::string shown(std::string_view value) { return fmt::format("\"{}\"", value); }

  std::string text_;
};

// Returns a configuration whose names are spelled in one way.
base::Json spelled_alike(base::Json config) {
  const auto parallelism = config.find("parallelism");
  if (parallelism == config.end()) return config;
  const auto name = parallelism->find("pipeline_parallel_schedule");
  if (name == parallelism->end() || !name->is_string()) return config;
  if (const auto kind = schedule::kind_from_name(name->get<std::string>())) {
    *name = schedule::name_of(*kind);
  }
  return config;
}

}  // namespace

std::string changes_of_identity(const spec::Plan& was, const spec::Plan& is) {
  const spec::Layout &a = was.layout, &b = is.layout;
  ChangeText changes;
  changes.compare("logical_dp", int64_t{a.logical_dp}, int64_t{b.logical_dp});
  changes.compare("reduce", spec::name_of(a.reduce), spec::name_of(b.reduce));
  changes.compare("reduce_dtype", base::name_of(a.reduce_dtype), base::name_of(b.reduce_dtype));
  changes.compare("recipe", was.recipe.name, is.recipe.name);
  if (was.recipe.name == is.recipe.name) {
    changes.compare("recipe.grad", base::name_of(was.recipe.grad), base::name_of(is.recipe.grad));
    changes.compare("bf16_first", int64_t{a.bf16_first}, int64_t{b.bf16_first});
    changes.compare("bf16_last", int64_t{a.bf16_last}, int64_t{b.bf16_last});
  }
  const spec::OptimizerTypes &from = was.optimizer, &to = is.optimizer;
  changes.compare("optimizer", spec::name_of(from.kind), spec::name_of(to.kind));
  if (from.kind == to.kind) {
    changes.compare("optimizer.master", base::name_of(from.master), base::name_of(to.master));
  }
  changes.compare("sequence_parallel", a.sequence_parallel, b.sequence_parallel);
  changes.compare("ffn_rows", a.ffn_rows, b.ffn_rows);
  for (const spec::Axis axis : {spec::Axis::tp, spec::Axis::cp, spec::Axis::ep, spec::Axis::etp}) {
    changes.compare(spec::name_of(axis).data(), int64_t{was.mesh[axis]}, int64_t{is.mesh[axis]});
  }
  if (was.mesh[spec::Axis::cp] == is.mesh[spec::Axis::cp] && is.mesh[spec::Axis::cp] > 1) {
    changes.compare("context_kind", spec::name_of(a.context_kind), spec::name_of(b.context_kind));
    changes.compare("context_slices", spec::name_of(a.context_slices),
                    spec::name_of(b.context_slices));
    changes.compare("ulysses", int64_t{a.ulysses}, int64_t{b.ulysses});
  }
  // Ranks that exchange tokens of experts multiply those of their workers together.
  if (is.mesh[spec::Axis::ep] * is.mesh[spec::Axis::etp] > 1) {
    changes.compare("data_ranks", int64_t{spec::data_ranks(was.mesh)},
                    int64_t{spec::data_ranks(is.mesh)});
  }
  return changes.text();
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
  const auto has_objects = [](const base::Json& list) {
    return list.is_array() &&
           std::ranges::any_of(list, [](const base::Json& one) { return one.is_object(); });
  };
  if (was.is_array() && is.is_array() && (has_objects(was) || has_objects(is))) {
    for (size_t i = 0; i < std::max(was.size(), is.size()); ++i) {
      list_changes(fmt::format("{}[{}]", path, i), i < was.size() ? was[i] : base::Json(),
                   i < is.size() ? is[i] : base::Json(), lines);
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
    const base::Json was = spelled_alike(value_of("config"));
    base::Json is =
        spelled_alike(without_added_keys(was, own.at("config"), config::to_json(config::Config{})));
    // Written by a build without names of runs.
    if (was.contains("job") && !was.at("job").contains("name")) is.at("job").erase("name");
    list_changes("", was, is, changes.config);
  }
  return changes;
}

}  // namespace trireme::train
