// SPDX-License-Identifier: Apache-2.0
// trireme ckpt diff: prints the differences between two checkpoints.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text/json.h"
#include "ckpt/difference.h"
#include "ckpt/disk/posix_disk.h"
#include "ckpt/generation/windows.h"
#include "cli/ckpt/ckpt_place.h"
#include "cli/ckpt/ckpt_verbs.h"
#include "cli/shell/progress.h"
#include "obs/terminal/number_text.h"

namespace trireme::cli {
namespace {

using ckpt::Unlike;

const char* words_of(Unlike what) {
  switch (what) {
    case Unlike::only_first:
      return "only in the first";
    case Unlike::only_second:
      return "only in the second";
    case Unlike::type:
      return "another type";
    case Unlike::shape:
      return "another shape";
    default:
      return "values";
  }
}

// JSON has no infinity.
base::Json number_json(double value) {
  return std::isfinite(value) ? base::Json(value) : base::Json(fmt::format("{}", value));
}

base::Json keys_json(const std::vector<ckpt::KeyDifference>& keys) {
  base::Json list = base::Json::array();
  for (const auto& [key, first, second] : keys) {
    list.push_back({{"key", key}, {"first", first}, {"second", second}});
  }
  return list;
}

base::Json to_json(const ckpt::Differences& found) {
  base::Json tensors = base::Json::array();
  for (const ckpt::TensorDifference& one : found.unlike) {
    base::Json& entry =
        tensors.emplace_back(base::Json{{"name", one.name}, {"difference", words_of(one.what)}});
    if (one.what != Unlike::values) continue;
    entry["elements"] = one.elements;
    entry["largest"] = number_json(one.largest);
    entry["place"] = one.place;
    entry["first"] = number_json(one.first);
    entry["second"] = number_json(one.second);
  }
  return {{"ok", found.are_equal()},
          {"compared", found.tensors},
          {"tensors", std::move(tensors)},
          {"state", keys_json(found.state)},
          {"plan", keys_json(found.plan)}};
}

// Truncates long values, such as a schedule of thousands of actions.
std::string short_text(const base::Json& value) {
  constexpr size_t max_size = 60;
  std::string text = value.dump();
  if (text.size() > max_size) text = text.substr(0, max_size) + "...";
  return text;
}

void print_keys(const char* what, const std::vector<ckpt::KeyDifference>& keys) {
  for (const auto& [key, first, second] : keys) {
    fmt::print("{} {}: {} and {}\n", what, key, short_text(first), short_text(second));
  }
}

void print(const ckpt::Differences& found) {
  for (const ckpt::TensorDifference& one : found.unlike) {
    if (one.what != Unlike::values) {
      fmt::print("{}: {}\n", one.name, words_of(one.what));
      continue;
    }
    fmt::print("{}: {} elements differ, by {:.6g} at most; first at [{}]: {:.9g} and {:.9g}\n",
               one.name, obs::grouped(one.elements), one.largest, fmt::join(one.place, ", "),
               one.first, one.second);
  }
  print_keys("state", found.state);
  print_keys("plan", found.plan);
  if (found.are_equal()) {
    fmt::print("equal: {} tensors and the state\n", found.tensors);
  } else {
    fmt::print("different: {} of {} tensors, {} keys of the state\n", found.unlike.size(),
               std::max<int64_t>(found.tensors, std::ssize(found.unlike)), found.state.size());
  }
}

int run_ckpt_diff(const Args& args) {
  const double tolerance = args.number("--tolerance");
  if (!(tolerance >= 0)) {
    throw base::ConfigError(fmt::format("--tolerance {}: must be 0 or above", tolerance));
  }
  const auto disk = ckpt::posix_disk();
  const ckpt::Generation first = open_checkpoint(*disk, args.text("first"), {});
  const ckpt::Generation second = open_checkpoint(*disk, args.text("second"), {});
  int64_t bytes = 0;
  for (const ckpt::TensorInfo& tensor : first.manifest().tensors) bytes += ckpt::bytes_of(tensor);
  Progress progress("ckpt diff", "bytes", bytes);
  const ckpt::Differences found = ckpt::difference(
      first, second,
      {.tolerance = tolerance,
       .progress = [&](int64_t done, const std::string& name) { progress.update(done, name); }});
  progress.finish();
  if (args.wants_json()) {
    fmt::print("{}\n", to_json(found).dump());
  } else {
    print(found);
  }
  return found.are_equal() ? 0 : 1;
}

}  // namespace

Verb ckpt_diff_verb() {
  return {
      .name = "ckpt diff",
      .summary = "Compare two checkpoints tensor by tensor, also of different layouts",
      .details =
          "The exit code is 0 if tensors and state are equal, otherwise 1. Different keys of the "
          "plan\n"
          "are printed but do not count: they describe the layout. For a folder, the newest "
          "checkpoint\n"
          "is compared.\n\nExamples:\n"
          "  trireme ckpt diff runs/saved runs/resharded\n"
          "  trireme ckpt diff runs/saved/checkpoint/step-00000020 "
          "runs/resharded --tolerance 1e-6 --json",
      .options =
          {{.name = "first",
            .help = "First checkpoint, or a folder of checkpoints",
            .is_required = true},
           {.name = "second",
            .help = "Second checkpoint, or a folder of checkpoints",
            .is_required = true},
           {.name = "--tolerance",
            .kind = Kind::number,
            .fallback = "0",
            .help =
                "Largest difference of elements that count as equal; 0: all bits must be equal"}},
      .run = run_ckpt_diff};
}

}  // namespace trireme::cli
