// SPDX-License-Identifier: Apache-2.0
// Step times of GPT models on A100, as printed (Qi et al., Zero Bubble Pipeline Parallelism,
// arXiv:2401.10241, tables 3 to 5): ratios between schedules of the same model and batch.
//
// F, B and W are those of facts(); one rate in FLOP/s for each model is fitted to its step times.
// Assumptions that the paper does not print: a vocabulary of 32,000; memory at 1.6 TB/s; 8 GPUs per
// node on NVLink (250 GB/s each way), one 200 Gb/s port between nodes; 1F1B and 1F1B-I wait for
// their sends, as Megatron-LM's loops do, and the zero-bubble schedules do not. ZB-1p and ZB-2p,
// which a search found under the memory of 1F1B and twice that, are compared with ZB-H1 and ZB-H2.
#include <gtest/gtest.h>

#include <cmath>

#include "schedule/catalogue.h"
#include "sim/model_costs.h"
#include "spec/model.h"

namespace trireme::sim {
namespace {

struct Model {
  double billions;
  int layers;
  int64_t hidden, heads;
  int ranks;
  int64_t microbatch;
  int chunks;  // of 1F1B-I, one layer each
};
const std::vector<Model> models = {{1.5, 22, 2304, 24, 8, 6, 3},
                                   {6.2, 30, 4096, 32, 8, 3, 4},
                                   {14.6, 46, 5120, 40, 16, 1, 3},
                                   {28.3, 62, 6144, 48, 32, 1, 2}};
struct Row {
  double billions;
  int microbatches;
  const char* schedule;
  double seconds;
};
const std::vector<Row> rows = {
    {1.5, 24, "zb-h2", 1.2414},        {1.5, 24, "zb-h1", 1.3953},
    {1.5, 24, "1f1b", 1.5254},         {1.5, 24, "interleaved", 1.374},
    {1.5, 32, "zb-h2", 1.6216},        {1.5, 32, "zb-h1", 1.791},
    {1.5, 32, "1f1b", 1.92},           {1.5, 64, "zb-h2", 3.2215},
    {1.5, 64, "zb-h1", 3.3803},        {1.5, 64, "1f1b", 3.5294},
    {6.2, 24, "zb-h2", 2.0833},        {6.2, 24, "zb-h1", 2.3196},
    {6.2, 32, "zb-h2", 2.7586},        {6.2, 32, "zb-h1", 3.0},
    {6.2, 32, "interleaved", 2.9412},  {6.2, 64, "zb-h2", 5.467},
    {6.2, 64, "interleaved", 5.7279},  {14.6, 48, "zb-h2", 1.6575},
    {14.6, 48, "zb-h1", 1.8634},       {14.6, 48, "interleaved", 1.9481},
    {14.6, 64, "zb-h2", 2.1858},       {14.6, 64, "interleaved", 2.5157},
    {14.6, 128, "zb-h1", 4.5455},      {14.6, 128, "1f1b", 4.878},
    {28.3, 96, "zb-h1", 3.4483},       {28.3, 96, "1f1b", 3.9474},
    {28.3, 128, "zb-h1", 4.4444},      {28.3, 128, "interleaved", 4.7059},
    {28.3, 256, "zb-h1", 8.3333},      {28.3, 256, "1f1b", 9.0909},
    {28.3, 256, "interleaved", 8.8889}};

// Stages with equal numbers of layers; embedding and head count as one each.
std::vector<int> cut_of(int layers, int stages) {
  std::vector<int> cut;
  for (int stage = 0; stage < stages; ++stage) cut.push_back(stage * (layers + 2) / stages);
  return cut;
}

double predicted(const Model& model, const Row& row, double flops_per_second) {
  const spec::ModelSpec spec = spec::make_model({.family = spec::Family::gpt2,
                                                 .layers = model.layers,
                                                 .hidden = model.hidden,
                                                 .heads = model.heads,
                                                 .ffn = 4 * model.hidden,
                                                 .vocab = 32000,
                                                 .max_seq = 1024});
  Costs layers = layer_costs(spec, {.shape = {.tokens = 1024 * model.microbatch,
                                              .sequences = model.microbatch,
                                              .seq_len = 1024,
                                              .head_chunk_rows = 1024},
                                    .recipe = spec::recipe_from_name("bf16"),
                                    .backend = spec::cuda_backend(false),
                                    .flops_per_second = flops_per_second,
                                    .bytes_per_second = 1.6e12});
  // Our head does all its work in F; theirs, like every linear layer, a third each in F, B and W.
  StageSeconds& head = layers.seconds.back();
  head.f = head.b = head.w = (head.f + head.b + head.w) / 3;
  head.bw = head.b + head.w;
  const std::string_view name = row.schedule;
  const int chunks = name == "interleaved" ? model.chunks : 1;
  const Costs costs = stage_costs(layers, cut_of(model.layers, chunks * model.ranks));
  const Links links = node_links({model.ranks, 8, {10e-6, 250e9}, {20e-6, 25e9}});
  const schedule::Schedule schedule =
      schedule::add_p2p(schedule::generate(name, {model.ranks, row.microbatches, chunks}).value());
  return simulate(schedule, costs, links, {.sends_block = !name.starts_with("zb")}).step_time;
}

// Returns the mean factor by which the model's predicted step times are too long.
double mean_factor(const Model& model, double flops_per_second) {
  double sum = 0;
  int count = 0;
  for (const Row& row : rows) {
    if (row.billions != model.billions) continue;
    sum += std::log(predicted(model, row, flops_per_second) / row.seconds);
    ++count;
  }
  return std::exp(sum / count);
}

// One pair of 27 misses: 1F1B over ZB-1p at 1.5B and 24 micro-batches, by 7.1 %. Measured W is half
// of F there (attention without fused kernels), but facts() has them about equal.
TEST(PublishedTest, ratios_between_schedules_are_within_six_percent) {
  int pairs = 0, misses = 0;
  for (const Model& model : models) {
    double rate = 150e12;
    for (int round = 0; round < 4; ++round) rate *= mean_factor(model, rate);
    for (const Row& one : rows) {
      for (const Row& other : rows) {
        const bool is_pair = one.billions == model.billions && other.billions == model.billions &&
                             one.microbatches == other.microbatches && &one < &other;
        if (!is_pair) continue;
        const double ratio = predicted(model, other, rate) / predicted(model, one, rate);
        const double error = ratio / (other.seconds / one.seconds) - 1;
        ++pairs;
        misses += std::abs(error) > 0.06 ? 1 : 0;
        EXPECT_LT(std::abs(error), 0.075)
            << model.billions << "B, " << one.microbatches << " micro-batches, " << other.schedule
            << " over " << one.schedule << ": " << ratio;
      }
    }
  }
  EXPECT_EQ(pairs, 27);
  EXPECT_LE(misses, 1);
}

}  // namespace
}  // namespace trireme::sim
