// SPDX-License-Identifier: Apache-2.0
// Healthy layouts, in which verify must find no error.
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/text/json.h"
#include "tests/verify/verify_rig.h"

namespace trireme::tests {
namespace {

using spec::Recompute;
using spec::ReduceWhen;

TEST(VerifyHealthy, finds_no_error_in_a_grid_of_layouts) {
  std::vector<SmallJob> jobs;
  for (const spec::ModelDims& dims : {tiny_gpt2(), tiny_llama(), tiny_qwen3()}) {
    jobs.push_back({.dims = dims});
    jobs.push_back({.dims = dims, .dp = 2, .logical_dp = 4, .microbatches = 2});
    jobs.push_back({.dims = dims, .dp = 3, .recipe = "bf16", .recompute = Recompute::full});
    jobs.push_back({.dims = dims, .zero = 2, .stage = 1, .document_mask = true});
    jobs.push_back(
        {.dims = dims, .zero = 2, .stage = 2, .microbatches = 2, .reduce = ReduceWhen::each});
    jobs.push_back({.dims = dims,
                    .zero = 4,
                    .stage = 3,
                    .recipe = "bf16",
                    .grad = base::DType::bf16,
                    .recompute = Recompute::selective});
    jobs.push_back({.dims = dims,
                    .dp = 2,
                    .zero = 2,
                    .stage = 3,
                    .recipe = "bf16",
                    .reduce_dtype = base::DType::bf16,
                    .microbatches = 2,
                    .reduce = ReduceWhen::each,
                    .prefetch = 2,
                    .prefetch_after = true});
  }
  for (const spec::ModelDims& dims : {even_gpt2(), tiny_llama(), tiny_qwen3()}) {
    for (const bool sequence_parallel : {false, true}) {
      const auto add = [&](SmallJob job) {
        job.dims = dims;
        job.tp = 2;
        job.sequence_parallel = sequence_parallel;
        jobs.push_back(job);
      };
      add({});
      add({.recipe = "bf16", .microbatches = 2, .recompute = Recompute::full});
      add({.dp = 2, .logical_dp = 4, .document_mask = true});
      add({.zero = 2, .stage = 1, .recipe = "bf16", .grad = base::DType::bf16});
      add({.zero = 2,
           .stage = 3,
           .microbatches = 2,
           .reduce = ReduceWhen::each,
           .recompute = Recompute::selective});
      add({.dp = 2, .zero = 2, .stage = 2});
    }
  }
  for (const SmallJob& job : jobs) {
    const train::VerifyReport report = train::verify(job_of(job));
    EXPECT_TRUE(report.ok()) << train::to_text(report);
    EXPECT_EQ(report.by_rank.size(), static_cast<size_t>(job.dp * job.zero * job.tp));
  }
}

TEST(VerifyHealthy, finds_no_error_in_pipelines) {
  std::vector<SmallJob> jobs;
  for (const spec::ModelDims& dims : {deep(tiny_gpt2()), deep(tiny_llama())}) {
    for (const char* schedule :
         {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "dualpipev"}) {
      for (const int pp : {2, 4}) {
        jobs.push_back({.dims = dims, .microbatches = 2 * pp + 1, .pp = pp, .schedule = schedule});
      }
    }
    const auto add = [&](SmallJob job) {
      job.dims = dims;
      job.pp = 2;
      jobs.push_back(job);
    };
    add({.recipe = "bf16", .microbatches = 3, .recompute = Recompute::full, .cut = {0, 1}});
    add({.microbatches = 3, .recompute = Recompute::selective, .cut = {0, 7}, .send_buffers = 1});
    add({.dp = 2, .logical_dp = 4, .microbatches = 2, .document_mask = true});
    add({.dp = 2, .microbatches = 4, .schedule = "zb-v"});
    add({.zero = 2, .stage = 1, .recipe = "bf16", .microbatches = 4, .schedule = "dualpipev"});
    add({.zero = 2, .stage = 2, .microbatches = 4, .reduce = ReduceWhen::each});
    add({.zero = 2,
         .stage = 3,
         .microbatches = 4,
         .reduce = ReduceWhen::each,
         .schedule = "interleaved",
         .keep_params = true});
    add({.zero = 2, .stage = 3, .microbatches = 3, .reduce = ReduceWhen::each});
    // Gradients of the table are sent before the owner can receive those of the first micro-batch.
    add({.microbatches = 2, .reduce = ReduceWhen::each, .schedule = "interleaved"});
    add({.microbatches = 4, .reduce = ReduceWhen::each, .schedule = "interleaved", .chunks = 3});
  }
  jobs.push_back({.dims = deep(tiny_llama()), .tp = 2, .microbatches = 4, .pp = 2});
  jobs.push_back({.dims = deep(even_gpt2()),
                  .tp = 2,
                  .sequence_parallel = true,
                  .microbatches = 4,
                  .pp = 2,
                  .schedule = "zb-h1"});
  for (const SmallJob& job : jobs) {
    const train::VerifyReport report = train::verify(job_of(job));
    EXPECT_TRUE(report.ok()) << train::to_text(report);
    EXPECT_EQ(report.by_rank.size(), static_cast<size_t>(job.pp * job.dp * job.zero * job.tp));
    EXPECT_EQ(report.layout.pp, job.pp);
  }
}

// Every kind and slices, alone and with each other axis.
std::vector<SmallJob> context_jobs() {
  using Kind = spec::ContextKind;
  using Slices = spec::ContextSlices;
  const SmallJob base{.dims = with_heads(tiny_qwen3(), 4), .seq_len = 24};
  std::vector<SmallJob> kinds;
  const auto kind = [&](int cp, Kind of, Slices slices, int degree) {
    SmallJob job = base;
    job.cp = cp;
    job.kind = of;
    job.slices = slices;
    job.ulysses = degree;
    kinds.push_back(job);
  };
  kind(2, Kind::ulysses, Slices::zigzag, 0);
  kind(3, Kind::gather, Slices::zigzag, 0);
  kind(2, Kind::ring, Slices::zigzag, 0);
  kind(4, Kind::ulysses_gather, Slices::blocks, 2);
  kind(4, Kind::ulysses_ring, Slices::striped, 2);
  std::vector<SmallJob> jobs = kinds;
  const auto add = [&](const SmallJob& with) {
    for (SmallJob job : kinds) {
      if (job.cp == 3 && with.tp * with.pp > 1) job.cp = 2;
      job.dp = with.dp;
      job.zero = with.zero;
      job.stage = with.stage;
      job.tp = with.tp;
      job.sequence_parallel = with.sequence_parallel;
      job.recipe = with.recipe;
      job.microbatches = with.microbatches;
      job.reduce = with.reduce;
      job.recompute = with.recompute;
      job.document_mask = with.document_mask;
      job.sequences = with.sequences;
      job.pp = with.pp;
      if (with.pp > 1) job.dims = deep(job.dims);
      jobs.push_back(job);
    }
  };
  add({.document_mask = true, .sequences = 2});
  add({.stage = 1, .recipe = "bf16", .recompute = Recompute::full});
  add({.zero = 2, .stage = 3, .microbatches = 2, .reduce = ReduceWhen::each});
  add({.tp = 2, .sequence_parallel = true, .document_mask = true});
  add({.dp = 2, .microbatches = 2, .pp = 2});
  // One key/value head that all ranks read; a learned table of positions and a tied head.
  jobs.push_back(base);
  jobs.back().dims = with_heads(tiny_llama(), 1);
  jobs.back().cp = 4;
  jobs.back().kind = Kind::ulysses;
  jobs.push_back(base);
  jobs.back().dims = with_heads(tiny_gpt2(), 8);
  jobs.back().cp = 4;
  jobs.back().slices = Slices::contiguous;
  return jobs;
}

TEST(VerifyHealthy, finds_no_error_in_context_parallelism) {
  for (const SmallJob& job : context_jobs()) {
    const train::VerifyReport report = train::verify(job_of(job));
    EXPECT_TRUE(report.ok()) << train::to_text(report);
    EXPECT_EQ(report.by_rank.size(),
              static_cast<size_t>(job.pp * job.dp * job.zero * job.cp * job.tp));
    // The layout is kept, and is in the report.
    EXPECT_EQ(report.layout.cp, job.cp);
    EXPECT_EQ(report.layout.context_kind, job.kind);
    EXPECT_EQ(report.layout.context_slices, job.slices);
    const std::string text = train::to_text(report);
    EXPECT_NE(text.find(fmt::format("cp {}", job.cp)), std::string::npos) << text;
    EXPECT_NE(text.find(spec::name_of(job.kind)), std::string::npos) << text;
    // Bytes along cp are in the tables, on every rank.
    const base::Json json = train::to_json(report);
    for (const base::Json& rank : json["ranks"]) {
      EXPECT_LT(rank["coord"]["cp"].get<int>(), job.cp);
      for (const char* kind : {"cp_forward", "cp_backward"}) {
        EXPECT_GT(rank["bytes"]["counted"][kind].get<int64_t>(), 0) << text;
        EXPECT_EQ(rank["bytes"]["counted"][kind], rank["bytes"]["predicted"][kind]);
      }
    }
  }
}

}  // namespace
}  // namespace trireme::tests
