// SPDX-License-Identifier: Apache-2.0
#include "plan/import/titan_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "base/error.h"
#include "base/text/count_text.h"

namespace trireme::plan {
namespace {

constexpr int64_t max_value = 1 << 30;

std::string path_of(const config::Entry& entry) {
  return entry.section.empty() ? entry.key : fmt::format("{}.{}", entry.section, entry.key);
}

constexpr std::array<std::string_view, 9> harmless_sections = {
    "job",        "profiling", "metrics", "lr_scheduler",     "checkpoint",
    "validation", "comm",      "debug",   "memory_estimation"};
// Sections of converters; they have no effect unless model.converters names one of them.
constexpr std::array<std::string_view, 6> converter_sections = {"float8",
                                                                "mx",
                                                                "quantize.linear.float8",
                                                                "quantize.linear.mx",
                                                                "quantize.grouped_mm.float8",
                                                                "quantize.grouped_mm.mx"};
constexpr std::array<std::string_view, 17> harmless_keys = {
    "model.hf_assets_path", "model.tokenizer_path",  "model.print_after_conversion",
    "model.norm_type",      "optimizer.lr",          "optimizer.eps",
    "optimizer.beta1",      "optimizer.beta2",       "optimizer.weight_decay",
    "training.max_norm",    "training.steps",        "training.warmup_steps",
    "training.dataset",     "training.dataset_path", "training.seed",
    "training.gc_freq",     "compile.components"};

}  // namespace

TitanKeys::TitanKeys(const std::string& text, std::string file)
    : file_(std::move(file)),
      entries_(config::entries_of_toml(text, file_, [](std::string_view) { return true; })) {}

const config::Entry* TitanKeys::find(std::string_view path) {
  read_.emplace(path);
  for (const config::Entry& entry : entries_) {
    if (!entry.is_section_start && path_of(entry) == path) return &entry;
  }
  return nullptr;
}

bool TitanKeys::has_section(std::string_view name) const {
  return std::ranges::any_of(entries_,
                             [name](const config::Entry& one) { return one.section == name; });
}

bool TitanKeys::has(std::string_view path) const {
  return std::ranges::any_of(entries_, [path](const config::Entry& one) {
    return !one.is_section_start && path_of(one) == path;
  });
}

std::vector<std::string> TitanKeys::given() const {
  std::vector<std::string> paths;
  for (const config::Entry& entry : entries_) {
    if (!entry.is_section_start) paths.push_back(path_of(entry));
  }
  return paths;
}

std::optional<int64_t> TitanKeys::whole(std::string_view path, int64_t min) {
  const config::Entry* entry = find(path);
  if (entry == nullptr) return {};
  const auto* number = std::get_if<int64_t>(&entry->value);
  if (number == nullptr) {
    problem(path, "expected an integer");
    return {};
  }
  if (*number < min || (*number == 0 && min != 0) || *number > max_value) {
    problem(path, fmt::format("found {}, expected {}an integer from {} to {}", *number,
                              min < 0 ? "-1 or " : "", min == 0 ? 0 : 1, max_value));
    return {};
  }
  return *number;
}

std::optional<double> TitanKeys::number(std::string_view path) {
  const config::Entry* entry = find(path);
  if (entry == nullptr) return {};
  const auto* whole = std::get_if<int64_t>(&entry->value);
  const auto* real = std::get_if<double>(&entry->value);
  const double value = whole != nullptr ? static_cast<double>(*whole) : real ? *real : -1;
  if (!std::isfinite(value) || value < 0) {
    problem(path, "expected a number, at least 0");
    return {};
  }
  return value;
}

std::string TitanKeys::text(std::string_view path, const std::string& absent,
                            const std::vector<std::string_view>& allowed) {
  const config::Entry* entry = find(path);
  if (entry == nullptr) return absent;
  const auto* text = std::get_if<std::string>(&entry->value);
  if (text == nullptr) {
    problem(path, "expected a string");
    return absent;
  }
  if (!allowed.empty() && std::find(allowed.begin(), allowed.end(), *text) == allowed.end()) {
    problem(path, fmt::format("found \"{}\", expected one of {}", *text, fmt::join(allowed, ", ")));
    return absent;
  }
  return *text;
}

bool TitanKeys::boolean(std::string_view path, bool absent) {
  const config::Entry* entry = find(path);
  if (entry == nullptr) return absent;
  const auto* value = std::get_if<bool>(&entry->value);
  if (value == nullptr) problem(path, "expected true or false");
  return value == nullptr ? absent : *value;
}

std::vector<std::string> TitanKeys::texts(std::string_view path) {
  const config::Entry* entry = find(path);
  if (entry == nullptr) return {};
  if (const auto* one = std::get_if<std::string>(&entry->value)) return {*one};
  const auto* foreign = std::get_if<config::Foreign>(&entry->value);
  if (foreign != nullptr && !foreign->texts.empty()) return foreign->texts;
  const auto* numbers = std::get_if<std::vector<int64_t>>(&entry->value);
  if (numbers == nullptr || !numbers->empty()) problem(path, "expected a list of strings");
  return {};
}

int TitanKeys::degree(const std::string& key, int min) {
  constexpr int64_t max_degree = 1 << 20;
  std::optional<int64_t> found;
  std::string path;
  for (const char* section : {"experimental", "training", "parallelism"}) {
    const std::string here = fmt::format("{}.{}", section, key);
    const auto value = whole(here, min);
    if (value) {
      found = value;
      path = here;
    }
  }
  if (found > max_degree) {
    problem(path, fmt::format("found {}, expected at most {}", *found, max_degree));
    return 1;
  }
  return static_cast<int>(found.value_or(min));
}

void TitanKeys::problem(std::string_view path, const std::string& what) {
  const config::Entry* entry = find(path);
  std::string text = fmt::format("{}: {}: {}", entry ? entry->where : file_, path, what);
  // A key may be read more than once.
  if (std::find(problems_.begin(), problems_.end(), text) == problems_.end()) {
    problems_.push_back(std::move(text));
  }
}

void TitanKeys::throw_if_any() const {
  if (problems_.empty()) return;
  throw base::ConfigError(fmt::format("{}: {}\n  {}", file_,
                                      base::count_text(std::ssize(problems_), "problem"),
                                      fmt::join(problems_, "\n  ")));
}

std::vector<std::string> TitanKeys::not_read() const {
  std::vector<std::string> names;
  // A converter reads the recipe of its section.
  const auto is_read_section = [this](const std::string& section) {
    return read_.contains(section + ".recipe_name");
  };
  for (const config::Entry& entry : entries_) {
    const std::string path = path_of(entry);
    const auto is_in = [](const auto& list, std::string_view word) {
      return std::find(list.begin(), list.end(), word) != list.end();
    };
    if (entry.is_section_start || read_.contains(path) || is_in(harmless_keys, path) ||
        is_in(harmless_sections, entry.section.substr(0, entry.section.find('.'))) ||
        (is_in(converter_sections, entry.section) && !is_read_section(entry.section))) {
      continue;
    }
    names.push_back(path);
  }
  return names;
}

}  // namespace trireme::plan
