// SPDX-License-Identifier: Apache-2.0
#include "config/job_layout.h"

#include <fmt/format.h>

#include <optional>

#include "base/dtype.h"
#include "base/error.h"
#include "config/document.h"
#include "schedule/schedule.h"

namespace trireme::config {
namespace {

namespace fs = std::filesystem;

spec::LayoutNames paths() {
  return {"parallelism.data_parallel_replicate_degree",
          "parallelism.data_parallel_shard_degree",
          "parallelism.tensor_parallel_degree",
          "parallelism.pipeline_parallel_degree",
          "parallelism.zero_stage",
          "parallelism.logical_dp",
          "parallelism.reduce",
          "parallelism.sequence_parallel",
          "training.local_batch_size",
          "training.global_batch_size",
          "training.seq_len",
          "parallelism.pipeline_parallel_schedule",
          "parallelism.pipeline_parallel_chunks",
          "parallelism.pipeline_parallel_schedule_file",
          "parallelism.pipeline_parallel_first_layers",
          "model.dims"};
}

// At most one degree may be the rest. A default of -1 gives way to one that the user wrote; axes
// that this build does not cut are 1.
void settle_rest(Config& c, Report& report) {
  std::vector<std::string> written;
  std::vector<int64_t*> open;
  for (const Key& key : keys_of(c)) {
    if (key.section != "parallelism" || !key.name.ends_with("_degree")) continue;
    int64_t& degree = *std::get<int64_t*>(key.field);
    const std::string path = key.path();
    const bool is_cut = key.name.starts_with("data_") || key.name.starts_with("tensor_") ||
                        key.name.starts_with("pipeline_");
    if (degree == -1) {
      if (report.was_given(path)) written.push_back(path);
      if (!is_cut) degree = 1;
      if (is_cut) open.push_back(&degree);
      if (is_cut && report.was_given(path)) std::swap(open.front(), open.back());
    }
    report.demand(
        is_cut || degree == 1, {path},
        fmt::format("{} = {}: this build does not cut along it; nearest: 1", path, degree));
  }
  for (size_t i = 1; i < open.size(); ++i) *open[i] = 1;
  if (written.size() > 1) {
    report.add(report.where(written[1]),
               fmt::format("{} = -1: only one degree can be the rest, and {} is -1 too", written[1],
                           written[0]));
  }
}

// The schedule file that a configuration of `folder` names, if it names one.
bool read_schedule(Config& c, const fs::path& folder, Report& report) {
  const std::string key = "parallelism.pipeline_parallel_schedule_file";
  const std::string& name = c.parallelism.pipeline_parallel_schedule_file;
  c.own_schedule.reset();
  if (name.empty()) return true;
  if (report.is_bad(key)) return false;
  const fs::path path = found_from(name, folder);
  try {
    const base::Result<schedule::Schedule> read = schedule::from_text(read_text(path));
    if (read) {
      c.own_schedule = read.value();
      return true;
    }
    report.add(report.where(key), fmt::format("{}: {}: {}", key, path.string(), read.reason()));
  } catch (const base::IoError& error) {
    report.add(report.where(key), fmt::format("{}: {}", key, error.what()));
  }
  return false;
}

// The layout with what is open filled in as it was saved: all of it, or without the reduction, or
// the batch alone; the first that breaks no rule.
spec::JobLayout with_saved_sums(const spec::ModelDims& dims, const spec::JobLayout& asked,
                                const SavedSums& saved, const spec::LayoutNames& names) {
  for (const auto& [takes_workers, takes_reduce] :
       {std::pair(true, true), std::pair(true, false), std::pair(false, false)}) {
    spec::JobLayout layout = asked;
    if (layout.global_batch == -1) layout.global_batch = saved.global_batch_size;
    if (takes_workers && layout.logical_dp == 0) layout.logical_dp = saved.logical_dp;
    if (takes_reduce && !layout.reduce) {
      layout.reduce = saved.reduce == "each" ? spec::ReduceWhen::each : spec::ReduceWhen::once;
    }
    if (spec::check_layout(dims, layout, names).problems.empty()) return layout;
  }
  return asked;
}

}  // namespace

spec::JobLayout layout_of(const Config& c) {
  const Parallelism& p = c.parallelism;
  spec::JobLayout layout;
  layout.dp = p.data_parallel_replicate_degree;
  layout.zero = p.data_parallel_shard_degree;
  layout.tp = p.tensor_parallel_degree;
  layout.zero_stage = p.zero_stage;
  layout.logical_dp = p.logical_dp;
  if (p.reduce == "once") layout.reduce = spec::ReduceWhen::once;
  if (p.reduce == "each") layout.reduce = spec::ReduceWhen::each;
  layout.sequence_parallel = p.sequence_parallel;
  layout.local_batch = c.training.local_batch_size;
  layout.global_batch = c.training.global_batch_size;
  layout.seq_len = c.training.seq_len;
  layout.pp = p.pipeline_parallel_degree;
  layout.schedule = p.pipeline_parallel_schedule;
  layout.chunks = p.pipeline_parallel_chunks;
  layout.own_schedule = c.own_schedule;
  layout.first_layers = p.pipeline_parallel_first_layers;
  layout.send_buffers = p.pipeline_parallel_send_buffers;
  if (p.fsdp_reshard_after_forward == "never") layout.keep_params = true;
  if (p.fsdp_reshard_after_forward == "always") layout.keep_params = false;
  return layout;
}

spec::SplitOptions split_of(const Config& c) {
  spec::SplitOptions split = spec::split_of(layout_of(c));
  split.reduce_dtype = base::dtype_from_name(c.parallelism.reduce_dtype);
  split.prefetch = static_cast<int>(c.parallelism.prefetch);
  split.prefetch_after = c.parallelism.prefetch_after;
  return split;
}

void solve_layout(Config& c, const fs::path& folder, const LoadOptions& options, Report& report) {
  if (!read_schedule(c, folder, report)) {
    report.mark_bad("parallelism.pipeline_parallel_schedule_file");
  }
  settle_rest(c, report);
  spec::JobLayout asked = layout_of(c);
  asked.world = options.world;
  const spec::LayoutNames names = paths();
  const spec::ModelDims unknown;
  const spec::ModelDims& dims = report.is_bad("model.dims") ? unknown : c.dims;
  if (options.saved) asked = with_saved_sums(dims, asked, *options.saved, names);
  const spec::LayoutCheck check = spec::check_layout(dims, asked, names);
  for (const spec::LayoutProblem& problem : check.problems) {
    std::vector<std::string> keys;
    for (const spec::LayoutKey key : problem.keys) keys.push_back(names[static_cast<size_t>(key)]);
    report.blame(keys, problem.text);
  }
  Parallelism& p = c.parallelism;
  p.data_parallel_replicate_degree = check.layout.dp;
  p.data_parallel_shard_degree = check.layout.zero;
  p.tensor_parallel_degree = check.layout.tp;
  p.pipeline_parallel_degree = check.layout.pp;
  p.zero_stage = check.layout.zero_stage;
  p.logical_dp = check.layout.logical_dp;
  p.reduce = check.layout.reduce == spec::ReduceWhen::each ? "each" : "once";
  c.training.global_batch_size = check.layout.global_batch;
}

}  // namespace trireme::config
