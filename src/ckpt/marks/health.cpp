// SPDX-License-Identifier: Apache-2.0
#include "ckpt/marks/health.h"

#include <algorithm>

namespace trireme::ckpt {
namespace {

// Is `line` the last one that names its checkpoint?
bool is_last_of_own(const MarkLine& line, const Marks& marks) {
  const auto last = std::find_if(marks.rbegin(), marks.rend(), [&](const MarksLine& other) {
    const auto* mark = std::get_if<MarkLine>(&other);
    return mark != nullptr && mark->of == line.of;
  });
  return std::get_if<MarkLine>(&*last) == &line;
}

}  // namespace

bool continues(const GenerationId& later, const GenerationId& earlier, const Marks& marks) {
  if (earlier.step > later.step || earlier.epoch > later.epoch) return false;
  return std::ranges::all_of(marks, [&](const MarksLine& line) {
    const auto* resume = std::get_if<ResumeLine>(&line);
    const bool is_between =
        resume != nullptr && resume->epoch > earlier.epoch && resume->epoch <= later.epoch;
    return !is_between || resume->step >= earlier.step;
  });
}

std::optional<MarkLine> mark_of(const GenerationId& id, const Marks& marks) {
  for (auto line = marks.rbegin(); line != marks.rend(); ++line) {
    const auto* mark = std::get_if<MarkLine>(&*line);
    if (mark == nullptr) continue;
    const bool covers =
        mark->mark == Mark::bad && is_last_of_own(*mark, marks) && continues(id, mark->of, marks);
    if (mark->of == id || covers) return *mark;
  }
  return {};
}

}  // namespace trireme::ckpt
