// SPDX-License-Identifier: Apache-2.0
#include "train/record/grace_budget.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "obs/terminal/number_text.h"

namespace trireme::train {
namespace {

double number_at(const base::Json& data, const char* key) {
  const auto found = data.find(key);
  return found != data.end() && found->is_number() ? found->get<double>() : 0;
}

}  // namespace

GraceBudget::Line GraceBudget::line(double save_seconds, double step_seconds,
                                    const std::string& source) const {
  const double total = settle_seconds + step_seconds + save_seconds + reserve_seconds;
  const std::string sum = fmt::format(
      "{:.1f} s: {:g} s until all ranks know of it, {}save {:.2f} s ({}), {:g} s in "
      "reserve",
      total, settle_seconds,
      step_seconds > 0 ? fmt::format("step {:.2f} s, ", step_seconds) : std::string(), save_seconds,
      source, reserve_seconds);
  if (total < grace_) {
    return {.text = fmt::format("a stop takes {}; elastic.grace_s is {:g} s", sum, grace_)};
  }
  return {.text = fmt::format("a stop takes {}. That is not below elastic.grace_s = {:g} "
                              "s: its save may be lost, and the run would go on from the one "
                              "before. Request a longer grace time, save to a faster disk, or save "
                              "more often (checkpoint.interval_seconds)",
                              sum, grace_),
          .is_warning = true};
}

GraceBudget::Line GraceBudget::start(int64_t bytes, std::span<const obs::Event> earlier) {
  if (grace_ <= 0) return {};
  if (bytes == 0) {
    return {.text = "checkpoint.enable = false: a stop saves nothing", .is_warning = true};
  }
  const auto last = std::find_if(earlier.rbegin(), earlier.rend(), [](const obs::Event& event) {
    return event.kind == obs::EventKind::checkpoint && number_at(event.data, "bytes") > 0;
  });
  if (last == earlier.rend()) {
    return {.text = fmt::format("the time of a save ({}) is measured with the first one, "
                                "and compared with elastic.grace_s = {:g} s",
                                obs::bytes_text(bytes), grace_)};
  }
  const double scale = static_cast<double>(bytes) / number_at(last->data, "bytes");
  return line(
      scale * number_at(last->data, "durable_seconds"), 0,
      fmt::format("predicted from that of step {} in attempt {}", last->step, last->attempt));
}

GraceBudget::Line GraceBudget::saved(double save_seconds, double step_seconds) {
  if (grace_ <= 0) return {};
  const Line line = this->line(save_seconds, step_seconds, "measured");
  const bool is_first = !std::exchange(has_measured_, true);
  const bool fitted = std::exchange(fitted_, !line.is_warning);
  const bool is_news = is_first || (fitted && line.is_warning);
  return is_news ? line : Line{};
}

}  // namespace trireme::train
