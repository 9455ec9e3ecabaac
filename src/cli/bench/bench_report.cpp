// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/bench_report.h"

#include <fmt/format.h>

#include "base/text/json.h"
#include "cli/bench/op_time_text.h"
#include "obs/terminal/number_text.h"
#include "train/report/memory_table.h"
#include "train/report/throughput.h"

namespace trireme::cli {

void print_bench(const train::StepBench& r, const train::StepBenchPeaks& peaks,
                 const base::Json& json) {
  fmt::print("{}\n", train::memory_table_text(r.plan.predicted.memory.front(), r.measured));
  if (peaks.roofline) fmt::print("{}\n", to_text(*peaks.roofline));
  fmt::print("device             {}, {}\n", r.hardware,
             r.was_captured ? "steps replayed from a captured graph" : "steps not captured");
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
  if (r.driver_used_bytes > 0) {
    fmt::print("driver reports     {} used, of which {} are not in the ledger\n",
               obs::bytes_text(r.driver_used_bytes),
               obs::bytes_text(r.driver_used_bytes - r.ledger_bytes));
  }
  fmt::print("first step after   {:.2f} s\n", r.startup_seconds);
}

}  // namespace trireme::cli
