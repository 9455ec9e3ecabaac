// SPDX-License-Identifier: Apache-2.0
// Schedules by name, with the shapes that each can have.
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
  int chunks = 1;                // of a rank; 0: as many as wanted
  bool is_v = false;             // the first rank has the last stage, too
  bool splits_backward = false;  // some weight gradients are computed later than input gradients
  Schedule (*make)(int ranks, int microbatches, int chunks) = nullptr;
};
// All but capped(), which needs costs.
std::span<const Named> catalogue();

// Upper and lower case, dashes and underscores make no difference: "ZB-H1", "zbh1". A "no" lists
// what there is.
base::Result<Named> find_named(std::string_view name);

// "gpipe, 1f1b or interleaved": the names, with `last` before the last one; those of one lane
// unless all are wanted.
std::string listed_names(std::string_view last, bool with_two_lanes = false);
const Named& named(Kind);
std::string_view name_of(Kind);
// In any spelling that find_named() takes.
std::optional<Kind> kind_from_name(std::string_view name);

constexpr int default_chunks = 2;  // of those that take any
// Stages of a rank where nothing else was asked for.
int chunks_of(Kind);

struct Shape {
  int ranks = 1, microbatches = 1;
  int chunks = 0;  // 0: the schedule's own number, or default_chunks
};
// Why the schedule does not have this shape, with the nearest shapes that it has; none: it does.
std::optional<std::string> refusal(Kind, const Shape&);
// Compute alone, before the passes. A "no" names the nearest shapes that the schedule can have.
base::Result<Schedule> generate(std::string_view name, const Shape&);
base::Result<Schedule> generate(Kind, const Shape&);

}  // namespace trireme::schedule
