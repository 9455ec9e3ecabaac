// SPDX-License-Identifier: Apache-2.0
#include "cli/chaos/step_lines.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/system/regular_file.h"
#include "base/text/json_depth.h"

namespace trireme::cli {
namespace {

// Values that are not finite are strings.
double number_at(const base::Json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_number() ? found->get<double>()
                                                   : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

void StepLines::read() {
  const base::RegularFile file = base::open_regular_file(file_);
  if (file.is_missing && offset_ == 0) return;
  if (!file.problem.empty()) {
    throw base::IoError(fmt::format("{} {}", file_.string(), file.problem));
  }
  // A process that was killed may have left an incomplete line, which the next one removes.
  if (file.bytes < offset_ && file.bytes < offset_ - static_cast<int64_t>(rest_.size())) {
    throw base::IoError(fmt::format(
        "{} became shorter ({} bytes, before {}): does another run write to this folder?",
        file_.string(), file.bytes, offset_));
  }
  // Incomplete lines are read again: another line may have taken their place.
  offset_ -= static_cast<int64_t>(rest_.size());
  rest_.clear();
  std::array<char, 65536> buffer{};
  for (;;) {
    const ssize_t got =
        ::pread(file.descriptor.value(), buffer.data(), buffer.size(), static_cast<off_t>(offset_));
    if (got <= 0) break;
    offset_ += got;
    rest_.append(buffer.data(), static_cast<size_t>(got));
    size_t begin = 0;
    for (size_t end = rest_.find('\n'); end != std::string::npos; end = rest_.find('\n', begin)) {
      take(std::string_view(rest_).substr(begin, end - begin));
      begin = end + 1;
    }
    rest_.erase(0, begin);
  }
}

void StepLines::take(std::string_view text) {
  const base::Json line = base::parse_shallow_json(text);
  if (!line.is_object()) return;  // damaged by a full disk: the step then counts as missing
  const std::string kind = line.value("kind", "");
  const double time = number_at(line, "time");
  if (kind == "start" || kind == "resume") starts_.push_back(time);
  if (kind != "train" || !line.contains("step")) return;
  const StepLine step{.step = line.at("step").get<int64_t>(),
                      .attempt = line.value("attempt", int64_t{0}),
                      .time = time,
                      .loss = number_at(line, "loss_metrics/global_avg_loss"),
                      .tokens = number_at(line, "tokens")};
  steps_.push_back(step);
  newest_ = std::max(newest_, step.step);
}

}  // namespace trireme::cli
