// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/bench_report.h"

#include <fmt/format.h>

#include "base/text/json.h"
#include "cli/bench/op_time_text.h"
#include "obs/terminal/number_text.h"
#include "train/report/memory_table.h"
#include "train/report/throughput.h"

namespace trireme::cli {

namespace {

// The lines of a rank without its peers, in place of rates of the whole job.
void print_lone_rank(const train::StepBench& r, const train::StepBenchPeaks& peaks,
                     const base::Json& json) {
  const base::Json& own = json["as_rank"];
  const train::LoneRankFacts& lone = *r.lone;
  std::string place, stages;
  for (const auto& [axis, coordinate] : own["coordinates"].items()) {
    place += fmt::format("{}{} {}", place.empty() ? "" : ", ", axis, coordinate.get<int>());
  }
  for (size_t i = 0; i < lone.stages.size(); ++i) {
    stages += fmt::format("{}{} (layers {} to {})", stages.empty() ? "" : ", ", lone.stages[i],
                          lone.layers[i].first, lone.layers[i].last - 1);
  }
  fmt::print("rank               {} of {}: {}\n", own["rank"].get<int>(),
             own["ranks"].get<int64_t>(), place);
  fmt::print("layout             {}\n", own["layout"].get<std::string>());
  fmt::print("stages             {}; {} micro-batches\n", stages, r.plan.schedule.microbatches);
  fmt::print("parameters         {}\n", obs::grouped(lone.parameters));
  fmt::print("transfers          {}: {} sent in a step\n", train::lone_transfers,
             obs::bytes_text(r.sent.total()));
  for (const auto& [kind, bytes] : own["sent_bytes"].items()) {
    if (kind == "total") continue;
    fmt::print("  {:<16} {} predicted, {} counted\n", kind,
               obs::grouped(bytes["predicted"].get<int64_t>()),
               obs::grouped(bytes["measured"].get<int64_t>()));
  }
  fmt::print(
      "beside compute     {:.2f} ms a step, {:.2f} ms of them exposed; ops take {:.3f} times as "
      "long as without transfers (traced steps)\n",
      1e3 * r.transfers->seconds, 1e3 * r.transfers->exposed_seconds, r.transfers->slow_down());
  fmt::print("stand-ins          {} beside the plan's memory\n",
             obs::bytes_text(lone.stand_in_bytes));
  fmt::print("ms per step        {:.1f} ({:.1f} to {:.1f})\n", 1e3 * r.median(),
             1e3 * r.seconds.front(), 1e3 * r.seconds.back());
  fmt::print("  no transfers     {:.1f}\n", 1e3 * r.transfers->step_seconds_alone);
  if (const base::Json& time = own["predicted"]; !time.is_null()) {
    fmt::print(
        "predicted ms       {:.1f} compute of this rank and {:.1f} update; {:.1f} a step of the "
        "job ({})\n",
        1e3 * time["compute_seconds"].get<double>(), 1e3 * time["update_seconds"].get<double>(),
        1e3 * time["step_seconds"].get<double>(), time["machine"].get<std::string>());
  }
  fmt::print("HFU                {:.1f} % of {:.4f} TFLOP/s ({})\n",
             100 * json["hfu"].get<double>(), peaks.flops.per_second / 1e12, peaks.flops.source);
  if (r.skipped > 0) {
    fmt::print("warning            {} steps were skipped: their updates were not applied\n",
               r.skipped);
  }
}

void print_rates(const train::StepBench& r, const train::StepBenchPeaks& peaks,
                 const base::Json& json) {
  fmt::print("tokens per second  {:.0f}\nms per step        {:.1f} ({:.1f} to {:.1f})\n",
             r.tokens() / r.median(), 1e3 * r.median(), 1e3 * r.seconds.front(),
             1e3 * r.seconds.back());
  fmt::print("MFU                {:.1f} % of {:.4f} TFLOP/s ({}), {}\n",
             100 * json["mfu"].get<double>(), peaks.flops.per_second / 1e12, peaks.flops.source,
             train::mfu_formula);
  fmt::print("HFU                {:.1f} %\n", 100 * json["hfu"].get<double>());
  if (peaks.gemm) {
    fmt::print("of GEMM peak       {:.1f} % of {:.4f} TFLOP/s ({})\n",
               100 * json["utilisation_of_gemm_peak"].get<double>(), peaks.gemm->per_second / 1e12,
               peaks.gemm->source);
  }
}

void print_copies(const train::CopyBench& b) {
  fmt::print(
      "copies             every {} steps: {:+.2f} % of step time ({:+.2f} to {:+.2f} %, 95 % of "
      "the median of {} pairs of windows of {} steps)\n",
      b.interval, 100 * (b.ratio.median - 1), 100 * (b.ratio.low - 1), 100 * (b.ratio.high - 1),
      b.ratios.size(), b.window_steps);
  fmt::print(
      "  a copy           {} in {:.1f} ms on the device ({}/s), {:.2f} ms of the host; {} made, {} "
      "skipped\n",
      obs::bytes_text(b.bytes), 1e3 * b.device_seconds,
      obs::bytes_text(static_cast<int64_t>(b.bytes_per_second())), 1e3 * b.host_seconds, b.made,
      b.skipped);
  fmt::print("  memory           ready after {:.2f} s\n", b.prepare_seconds);
}

}  // namespace

void print_bench(const train::StepBench& r, const train::StepBenchPeaks& peaks,
                 const base::Json& json) {
  fmt::print("{}\n", train::memory_table_text(r.predicted(), r.measured));
  if (peaks.roofline) fmt::print("{}\n", to_text(*peaks.roofline));
  fmt::print("device             {}, {}\n", r.hardware,
             r.was_captured ? "steps replayed from a captured graph" : "steps not captured");
  if (r.lone) {
    print_lone_rank(r, peaks, json);
  } else {
    print_rates(r, peaks, json);
  }
  if (r.copies) print_copies(*r.copies);
  if (r.driver_used_bytes > 0) {
    fmt::print("driver reports     {} used, of which {} are not in the ledger\n",
               obs::bytes_text(r.driver_used_bytes),
               obs::bytes_text(r.driver_used_bytes - r.ledger_bytes));
  }
  fmt::print("first step after   {:.2f} s\n", r.startup_seconds);
}

}  // namespace trireme::cli
