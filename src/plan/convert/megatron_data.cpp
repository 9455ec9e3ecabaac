// SPDX-License-Identifier: Apache-2.0
#include "plan/convert/megatron_data.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>

namespace trireme::plan {
namespace {

std::optional<double> weight_in(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !(value > 0)) return {};
  return value;
}

// Returns the weights and paths of a flag: one path, or a weight before every path.
std::vector<config::Dataset> data_sets(MegatronFlags& flags, const char* name) {
  const std::vector<std::string> words = flags.list(name);
  std::vector<config::Dataset> sets;
  if (words.size() == 1) {
    sets.emplace_back().path = words.front();
  } else if (words.size() % 2 == 0) {
    for (size_t i = 0; i < words.size(); i += 2) {
      const auto weight = weight_in(words[i]);
      if (!weight) {
        flags.problem(name, fmt::format("found {} before {}, expected a weight above 0", words[i],
                                        words[i + 1]));
        return {};
      }
      config::Dataset& set = sets.emplace_back();
      set.path = words[i + 1];
      set.weight = *weight;
    }
  } else if (!words.empty()) {
    flags.problem(name, "expected one path, or a weight before every path");
  }
  for (const config::Dataset& set : sets) {
    if (set.path.find('$') == std::string::npos) continue;
    flags.problem(name, fmt::format("found {}; write the value, because the shell's variables are "
                                    "unknown, or give the data of the run with --data",
                                    set.path));
  }
  return sets;
}

// Returns the share of held-out data in "949,50,1": parts for training, validation and test.
double held_out(MegatronFlags& flags) {
  constexpr const char* name = "--split";
  std::string text = flags.text(name);
  if (text.empty()) text = "969,30,1";
  double train = 0, valid = 0;
  const char* const end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, train);
  const bool has_second = first.ec == std::errc{} && first.ptr != end && *first.ptr == ',';
  bool is_good = has_second;
  if (has_second) {
    const char* begin = first.ptr + 1;
    while (begin != end && *begin == ' ') ++begin;
    const auto second = std::from_chars(begin, end, valid);
    is_good = second.ec == std::errc{} && (second.ptr == end || *second.ptr == ',');
  }
  if (!is_good || !(train > 0) || !(valid >= 0)) {
    flags.problem(name, fmt::format("found {}, expected parts of training, validation and test, "
                                    "as 949,50,1",
                                    text));
    return 0;
  }
  return valid / (train + valid);
}

void convert_validation(MegatronFlags& flags, Conversion& conversion) {
  config::Validation& v = conversion.config.validation;
  const bool is_asked = flags.has("--split") || flags.has("--eval-iters") ||
                        flags.has("--eval-interval") || flags.has("--valid-data-path");
  const std::vector<std::string> paths = flags.list("--valid-data-path");
  const int64_t batches = flags.whole("--eval-iters", 1 << 30, 0).value_or(100);
  const int64_t interval = flags.whole("--eval-interval").value_or(1000);
  const double share = held_out(flags);
  if (!is_asked || batches == 0 || (paths.empty() && share == 0)) return;
  v.enable = true;
  v.freq = interval;
  v.steps = batches;
  if (paths.empty()) {
    v.split = share;
  } else {
    const std::vector<config::Dataset> sets = data_sets(flags, "--valid-data-path");
    if (sets.size() == 1) v.dataset_path = sets.front().path;
    for (size_t i = 0; sets.size() > 1 && i < sets.size(); ++i) {
      v.dataset.emplace_back().path = sets[i].path;
    }
  }
}

}  // namespace

void convert_megatron_data(MegatronFlags& flags, const std::string& data, Conversion& conversion) {
  config::Training& t = conversion.config.training;
  convert_validation(flags, conversion);
  if (!data.empty()) {
    t.dataset_path = data;
    return;
  }
  const char* name = flags.has("--train-data-path") ? "--train-data-path" : "--data-path";
  std::vector<config::Dataset> sets = data_sets(flags, name);
  if (sets.size() == 1) {
    t.dataset_path = sets.front().path;
  } else {
    t.dataset = std::move(sets);
    for (size_t i = 0; i < t.dataset.size(); ++i) {
      for (const char* key : {"path", "weight"}) {
        conversion.origins.emplace(fmt::format("training.dataset[{}].{}", i, key), name);
      }
    }
  }
}

}  // namespace trireme::plan
