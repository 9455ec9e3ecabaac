// SPDX-License-Identifier: Apache-2.0
#include "train/trace/run_trace.h"

#include <fmt/format.h>

#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/text/json.h"
#include "obs/run_dir.h"
#include "train/trace/collective_times.h"
#include "train/trace/rank_trace.h"
#include "train/trace/trace_file.h"

namespace trireme::train {
namespace {

// Writes the object as one line.
void write_json(const std::filesystem::path& file, const base::Json& json) {
  obs::write_file(file, json.dump(-1, ' ', false, base::Json::error_handler_t::replace) + "\n");
}

// The file appears complete or not at all.
void write_whole(const std::filesystem::path& file, const std::vector<RankTrace>& traces) {
  const std::filesystem::path temporary = file.string() + ".tmp";
  std::error_code failed, ignored;
  try {
    obs::OutputFile out(temporary, obs::OutputFile::Mode::replace);
    write_trace(out, traces);
  } catch (const base::IoError&) {
    std::filesystem::remove(temporary, ignored);
    throw;
  }
  std::filesystem::rename(temporary, file, failed);
  if (!failed) return;
  std::filesystem::remove(temporary, ignored);
  throw base::IoError(fmt::format("{}: cannot be written: {}", file.string(), failed.message()));
}

}  // namespace

RunTrace::RunTrace(TraceSteps steps, engine::Engine& engine, Rank& rank)
    : steps_(steps), engine_(engine), rank_(rank) {
  if (steps.first == 0) return;
  timeline_ = std::make_unique<StreamTimeline>(engine.streams());
  picture_ = std::make_unique<StepPicture>(engine, rank);
}

void RunTrace::open(const std::filesystem::path& folder) {
  if (steps_.first == 0) return;
  const auto named = [&](const char* kind, const char* ending) {
    return folder / fmt::format("{}_steps_{}-{}.{}", kind, steps_.first, steps_.last, ending);
  };
  folder_ = folder;
  trace_file_ = named("trace", "json");
  picture_file_ = named("pipeline", "svg");
}

void RunTrace::begin_step(int64_t step) {
  timeline_->drain();
  picture_->begin_step(step);  // with a barrier
  const auto recorded = static_cast<int64_t>(timeline_->spans().size() * sizeof(TraceSpan));
  records_ = timeline_->steps().empty() || recorded < max_bytes / rank_.ranks();
  if (records_) {
    timeline_->start(step);
  } else {
    ++unrecorded_steps_;
  }
}

void RunTrace::end_step() {
  if (std::exchange(records_, false)) timeline_->finish();
  picture_->end_step();
}

int kept_stride(const std::vector<int64_t>& bytes, int64_t limit) {
  int stride = 1;
  const auto kept_bytes = [&] {
    int64_t sum = 0;
    for (size_t rank = 0; rank < bytes.size(); rank += static_cast<size_t>(stride)) {
      sum += bytes[rank];
    }
    return sum;
  };
  while (kept_bytes() > limit && stride < static_cast<int>(bytes.size())) ++stride;
  return stride;
}

RankTrace RunTrace::kept_trace() {
  RankTrace trace = rank_trace(rank_.number(), engine_.plan().mesh, *timeline_);
  const auto own = static_cast<int64_t>(trace.spans.size() * sizeof(TraceSpan));
  const int stride = kept_stride(rank_.gather(own), max_bytes);
  if (rank_.number() % stride != 0) trace.spans.clear();
  if (stride > 1) {
    lines_.push_back(
        fmt::format("trace     has every {}th rank only: records of all would exceed "
                    "{} MiB",
                    stride, max_bytes >> 20));
  }
  if (unrecorded_steps_ > 0) {
    lines_.push_back(
        fmt::format("trace     ends with step {}: records of the {} steps behind it "
                    "would exceed {} MiB",
                    trace.steps.back().step, unrecorded_steps_, max_bytes >> 20));
  }
  return trace;
}

std::vector<std::string> RunTrace::finish() {
  if (!timeline_) return {};
  const std::vector<std::string> traces = rank_.gather_texts(packed(kept_trace()));
  // Others wait for as long as the first rank writes.
  rank_.on_first([&] { write(traces); });
  timeline_.reset();
  picture_.reset();
  if (!rank_.is_first()) lines_.clear();
  return std::exchange(lines_, {});
}

void RunTrace::write(const std::vector<std::string>& packed_traces) {
  if (folder_.empty()) return;
  std::vector<RankTrace> traces;
  int waits = 0;
  for (const std::string& bytes : packed_traces) {
    traces.push_back(unpacked(bytes));
    waits += traces.back().host_waits;
  }
  write_whole(trace_file_, traces);
  lines_.push_back(fmt::format("trace     {}: {} rank{}, {} waits of the host inside steps",
                               trace_file_.string(), traces.size(), traces.size() == 1 ? "" : "s",
                               waits));
  if (!traces.front().steps.empty()) {
    write_json(folder_ / collectives_name, collectives_json(traces));
    // One of an earlier attempt, which had a pipeline.
    std::error_code ignored;
    if (!picture_->has_steps()) std::filesystem::remove(folder_ / pipeline_name, ignored);
  }
  if (!picture_->has_steps()) {  // no pipeline, or the run ended before the first traced step
    picture_file_.clear();
    return;
  }
  picture_->write(picture_file_);
  write_json(folder_ / pipeline_name, picture_->to_json());
  lines_.push_back(fmt::format("picture   {}: measured steps took {:.3f} of the simulated time",
                               picture_file_.string(), picture_->ratio()));
}

}  // namespace trireme::train
