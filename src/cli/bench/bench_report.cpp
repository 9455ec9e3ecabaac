// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/bench_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text/json.h"
#include "cli/shell/environment.h"
#include "obs/terminal/number_text.h"
#include "train/report/throughput.h"
#include "train/run/trainer.h"
#include "train/setup/setup.h"

namespace trireme::cli {

base::Json bench_json(const Args& args, const spec::ModelSpec& model, const BenchResult& r,
                      const BenchPeaks& peaks) {
  const double rate = r.tokens() / r.median();
  const train::Utilisation u = train::utilisation(model, r.plan, rate, peaks.flops.per_second);
  base::Json out = {
      {"ok", true},
      {"model", model.name},
      {"parameters", spec::parameter_count(model)},
      {"device", r.hardware},
      {"determinism", args.text("--determinism")},
      {"captured", r.was_captured},
      {"dtype", r.plan.recipe.name},
      {"grad_dtype", base::name_of(r.plan.recipe.grad)},
      {"master_dtype", base::name_of(r.plan.optimizer.master)},
      {"recompute", args.text("--recompute")},
      {"recompute_blocks", args.integer("--recompute-blocks")},
      {"threads", train::thread_count(threads_asked(args.integer("--threads")))},
      {"micro_batch", r.plan.layout.micro_batch},
      {"seq_len", r.plan.seq_len},
      {"accumulate", r.plan.schedule.microbatches},
      {"head_chunk_rows", r.plan.head_chunk_rows},
      {"tokens_per_second", rate},
      {"tokens_per_second_wall",
       r.tokens() * static_cast<double>(r.seconds.size()) / r.wall_seconds},
      {"ms_per_step", 1e3 * r.median()},
      {"ms_per_step_fastest", 1e3 * r.seconds.front()},
      {"ms_per_step_slowest", 1e3 * r.seconds.back()},
      {"mfu", u.mfu},
      {"hfu", u.hfu},
      {"peak_tflops", peaks.flops.per_second / 1e12},
      {"peak_source", peaks.flops.source},
      {"mfu_formula", train::mfu_formula},
      {"peak_bytes",
       {{"predicted", r.plan.predicted.memory.front().total()}, {"measured", r.measured.total()}}},
      {"ledger_bytes", r.ledger_bytes},
      {"driver_used_bytes", r.driver_used_bytes},
      {"context_bytes", r.context_bytes},
      {"library_bytes", std::max<int64_t>(0, r.driver_used_bytes - r.ledger_bytes)},
      {"startup_seconds", r.startup_seconds},
      {"loss", r.loss}};
  if (peaks.gemm) {
    out["gemm_peak_tflops"] = peaks.gemm->per_second / 1e12;
    out["utilisation_of_gemm_peak"] =
        train::utilisation(model, r.plan, rate, peaks.gemm->per_second).mfu;
  }
  if (peaks.roofline) out["roofline"] = peaks.roofline->json();
  return out;
}

void print_bench(const BenchResult& r, const BenchPeaks& peaks, const base::Json& json) {
  fmt::print("{}\n", train::memory_table_text(r.plan.predicted.memory.front(), r.measured));
  if (peaks.roofline) fmt::print("{}\n", peaks.roofline->text());
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
    fmt::print("of GEMM here       {:.1f} % of {:.4f} TFLOP/s ({})\n",
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
