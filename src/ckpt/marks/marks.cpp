// SPDX-License-Identifier: Apache-2.0
#include "ckpt/marks/marks.h"

#include <fmt/format.h>

#include <array>

#include "base/error.h"
#include "base/text/json.h"
#include "base/text/json_depth.h"

namespace trireme::ckpt {
namespace {

constexpr std::array<std::string_view, 3> mark_names = {"good", "suspect", "bad"};

// Throws base::Json::exception for a missing key or a value of another type.
MarksLine marks_line_from(const base::Json& json) {
  const auto time = json.at("time").get<double>();
  const auto epoch = json.at("epoch").get<int64_t>();
  if (json.contains("resumed_from")) {
    return ResumeLine{.epoch = epoch, .step = json.at("resumed_from").get<int64_t>(), .time = time};
  }
  const auto name = json.at("mark").get<std::string>();
  const std::optional<Mark> mark = mark_from(name);
  if (!mark) throw base::IoError(fmt::format("mark '{}' is none of good, suspect and bad", name));
  return MarkLine{.of = {.step = json.at("step").get<int64_t>(), .epoch = epoch},
                  .mark = *mark,
                  .detector = json.at("detector").get<std::string>(),
                  .evidence = json.at("evidence").get<std::string>(),
                  .time = time};
}

}  // namespace

std::string_view name_of(Mark mark) { return mark_names.at(static_cast<size_t>(mark)); }

std::optional<Mark> mark_from(std::string_view name) {
  for (size_t i = 0; i < mark_names.size(); ++i) {
    if (mark_names[i] == name) return static_cast<Mark>(i);
  }
  return {};
}

bool ended_in_divergence(const Marks& marks) {
  bool has_diverged = false;
  for (const MarksLine& line : marks) {
    const auto* mark = std::get_if<MarkLine>(&line);
    if (mark == nullptr) {
      has_diverged = false;
    } else if (mark->mark == Mark::bad && mark->detector == divergence_detector) {
      has_diverged = true;
    }
  }
  return has_diverged;
}

std::string to_text(const MarksLine& line) {
  base::Json json;
  if (const auto* resume = std::get_if<ResumeLine>(&line)) {
    json = {{"epoch", resume->epoch}, {"resumed_from", resume->step}, {"time", resume->time}};
  } else {
    const auto& mark = std::get<MarkLine>(line);
    json = {{"step", mark.of.step},      {"epoch", mark.of.epoch},    {"mark", name_of(mark.mark)},
            {"detector", mark.detector}, {"evidence", mark.evidence}, {"time", mark.time}};
  }
  return json.dump(-1, ' ', false, base::Json::error_handler_t::replace) + "\n";
}

Marks parse_marks(std::string_view text, const std::string& where) {
  Marks marks;
  for (int64_t number = 1;; ++number) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos) return marks;
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    const auto fail = [&](const std::string& problem) {
      return base::IoError(
          fmt::format("{}:{}: {}; it should be a line such as {}; remove it, and mark the "
                      "checkpoint again with `trireme ckpt mark`",
                      where, number, problem,
                      R"({"step":20,"epoch":1,"mark":"good","detector":"hand","evidence":"WHY",)"
                      R"("time":0})"));
    };
    const base::Json json = base::parse_shallow_json(line);
    if (!json.is_object()) throw fail("it is no JSON object");
    try {
      marks.push_back(marks_line_from(json));
    } catch (const base::Json::exception& error) {
      throw fail(error.what());
    } catch (const base::IoError& error) {
      throw fail(error.what());
    }
  }
}

}  // namespace trireme::ckpt
