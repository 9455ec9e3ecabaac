// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/plan_limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/error.h"
#include "plan/context/context_choice.h"
#include "spec/json_reader.h"
#include "spec/layout/layout_text.h"

namespace trireme::cli {
namespace {

struct Range {
  int64_t low = 1, high = int64_t{1} << 30;
};

// Parses "1,2,4". Throws ConfigError for a number outside the range.
std::vector<int64_t> numbers(const Args& args, const std::string& name, Range range = {}) {
  std::vector<int64_t> list;
  if (!args.has(name)) return list;
  const std::string text = args.text(name);
  const char* at = text.data();
  const char* const end = at + text.size();
  for (bool is_more = true; is_more; ++at) {
    int64_t value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    is_more = next != end && *next == ',';
    if (error != std::errc() || value < range.low || value > range.high ||
        (next != end && !is_more)) {
      throw base::ConfigError(
          fmt::format("{} {}: expected integers from {} to {}, separated by commas", name,
                      text.empty() ? "''" : text, range.low, range.high));
    }
    list.push_back(value);
    at = next;
  }
  return list;
}

std::vector<int> small_numbers(const Args& args, const std::string& name, Range range = {}) {
  const std::vector<int64_t> all = numbers(args, name, range);
  return {all.begin(), all.end()};
}

// Parses "a,b"; `parse` returns the value of a name, or nothing.
template <typename T, typename Parse>
std::vector<T> named(const Args& args, const std::string& name, const std::string& choices,
                     Parse parse) {
  std::vector<T> list;
  if (!args.has(name)) return list;
  const std::string text = args.text(name);
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::optional<T> value = parse(text.substr(at, end - at));
    if (!value) {
      throw base::ConfigError(fmt::format("{} {}: '{}' is not one of {}", name, text,
                                          text.substr(at, end - at), choices));
    }
    list.push_back(*value);
    at = end + 1;
  }
  return list;
}

// Throws ConfigError for features that the engine does not have, unless --unaudited is given.
void check_audited(const plan::Space& space) {
  if (space.unaudited) return;
  const auto refuse = [](const std::string& what) {
    throw base::ConfigError(
        fmt::format("{} is not in the engine; give --unaudited to price it", what));
  };
  for (const spec::Precision precision : space.precision) {
    if (precision == spec::Precision::fp4) {
      refuse(fmt::format("--precision: {}", spec::name_of(precision)));
    }
  }
}

}  // namespace

plan::Space plan_limits(const Args& args, const plan::Job& job, int64_t gpus,
                        bool is_other_program) {
  plan::Space space;
  space.tp = small_numbers(args, "--tp");
  space.pp = small_numbers(args, "--pp");
  space.cp = args.has("--cp") ? small_numbers(args, "--cp", {1, spec::max_degree})
                              : plan::default_context_degrees(job, gpus);
  if (args.has("--cp-kind")) {
    space.context_kinds = named<spec::ContextKind>(
        args, "--cp-kind", "ulysses, gather, ring, ulysses_gather, ulysses_ring",
        spec::context_kind_from_name);
  }
  space.ep = small_numbers(args, "--ep", {1, spec::max_degree});
  if (args.has("--etp")) space.etp = small_numbers(args, "--etp", {1, spec::max_degree});
  space.zero = small_numbers(args, "--zero", {0, 3});
  space.shard = small_numbers(args, "--shard");
  space.chunks = small_numbers(args, "--chunks");
  space.micro_batch = numbers(args, "--micro-batch");
  space.pipes =
      named<schedule::Kind>(args, "--schedule", schedule::listed_names(""),
                            [](const std::string& name) { return schedule::kind_from_name(name); });
  space.recompute = named<spec::Recompute>(args, "--recompute", "none, selective, full",
                                           spec::recompute_from_name);
  if (args.has("--precision")) {
    space.precision = named<spec::Precision>(
        args, "--precision", spec::all_names<spec::Precision>(), spec::precision_from_name);
  }
  space.unaudited = args.flag("--unaudited") || is_other_program;
  check_audited(space);
  return space;
}

}  // namespace trireme::cli
