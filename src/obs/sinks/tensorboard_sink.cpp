// SPDX-License-Identifier: Apache-2.0
#include "obs/sinks/tensorboard_sink.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "obs/sinks/tfevents.h"

namespace trireme::obs {

namespace {

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
  std::string text = name.data();
  std::replace(text.begin(), text.end(), '/', '_');
  return text;
}

std::filesystem::path new_file(const std::filesystem::path& folder, double wall_seconds) {
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (failed) {
    throw base::IoError(fmt::format("{}: the folder of TensorBoard events cannot be created: {}",
                                    folder.string(), failed.message()));
  }
  return folder / fmt::format("events.out.tfevents.{}.{}.{}.0", static_cast<int64_t>(wall_seconds),
                              host_name(), ::getpid());
}

}  // namespace

TensorboardSink::TensorboardSink(const std::filesystem::path& folder, Clock wall_clock)
    : wall_clock_(std::move(wall_clock)),
      file_(new_file(folder, wall_clock_()), OutputFile::Mode::replace) {
  file_.add(framed(version_event(wall_clock_())));
  if (file_.dropped() > 0) {
    throw base::IoError(fmt::format("{}: its first event cannot be written", path().string()));
  }
}

void TensorboardSink::begin(const AttemptStart& start) {
  if (start.resumed_from < 0) return;
  file_.add(framed(session_start_event(wall_clock_(), start.resumed_from + 1)));
}

void TensorboardSink::step(std::string_view /*kind*/, int64_t step,
                           std::span<const Metric> metrics) {
  file_.add(framed(scalar_event(wall_clock_(), step, metrics)));
}

}  // namespace trireme::obs
