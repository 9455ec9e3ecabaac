// SPDX-License-Identifier: Apache-2.0
// Schedules by name, with the shapes that each supports.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "schedule/schedule.h"

namespace trireme::schedule {

enum class Kind : uint8_t {
  gpipe,
  one_f_one_b,
  interleaved,
  zb_h1,
  zb_h2,
  zb_v,
  dualpipe,
  dualpipe_v,
  count
};

struct Named {
  Kind kind = Kind::gpipe;
  std::string_view name;
  std::string_view what;         // one line
  int chunks = 1;                // of a rank; 0: any number
  bool is_v = false;             // the first rank also has the last stage
  bool splits_backward = false;  // some weight gradients are computed later than input gradients
  Schedule (*make)(int ranks, int microbatches, int chunks) = nullptr;
};
// All schedules except capped(), which needs costs.
std::span<const Named> catalogue();

// What PyTorch and TorchTitan call a schedule.
struct PytorchName {
  std::string_view name;  // "Interleaved1F1B"
  Kind kind = Kind::gpipe;
  bool is_same = true;  // false: `kind` is the nearest schedule that exists here
};
std::span<const PytorchName> pytorch_names();
std::optional<PytorchName> find_pytorch_name(std::string_view name);  // in any case of letters

// Accepts the names of the catalogue and of PyTorch. Ignores case, dashes and underscores:
// "ZB-H1", "zbh1", "ZBVZeroBubble". A "no" lists the names of the catalogue.
base::Result<Named> find_named(std::string_view name);

// Returns "gpipe, 1f1b or interleaved": the names, with `last` before the last one. Schedules of
// two lanes are included only if `with_two_lanes`.
std::string listed_names(std::string_view last, bool with_two_lanes = false);
const Named& named(Kind);
std::string_view name_of(Kind);
// Accepts the spellings of find_named().
std::optional<Kind> kind_from_name(std::string_view name);

constexpr int default_chunks = 2;  // of schedules that allow any number
// Returns the default number of stages of a rank.
int chunks_of(Kind);

struct Shape {
  int ranks = 1, microbatches = 1;
  int chunks = 0;  // 0: chunks_of()
};
// Returns why the schedule does not support this shape, with the nearest shapes; none: it does.
std::optional<std::string> refusal(Kind, const Shape&);
// Returns compute only, before the passes. A "no" names the nearest shapes that the schedule
// supports.
base::Result<Schedule> generate(std::string_view name, const Shape&);
base::Result<Schedule> generate(Kind, const Shape&);

}  // namespace trireme::schedule
