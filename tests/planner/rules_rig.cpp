// SPDX-License-Identifier: Apache-2.0
#include "tests/planner/rules_rig.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "config/files/machine_file.h"
#include "config/files/model_file.h"
#include "config/files/stack_file.h"
#include "schedule/catalogue.h"

namespace trireme::tests {
namespace {

const std::filesystem::path root = TRIREME_SOURCE_DIR;

}  // namespace

spec::ModelSpec shipped_model(const std::string& name) {
  return spec::make_model(config::model_from_file(name, {root / "configs" / "models"}));
}

spec::Machine shipped_machine(const std::string& name) {
  return config::machine_from_file(name, {root / "machines"});
}

spec::Stack shipped_stack(const std::string& name) {
  return config::stack_from_file(name, {root / "stacks"});
}

spec::ModelSpec llama2(int64_t billions) {
  const bool is_7b = billions == 7;
  spec::ModelDims dims;
  dims.name = is_7b ? "llama2-7b" : "llama2-13b";
  dims.layers = is_7b ? 32 : 40;
  dims.hidden = is_7b ? 4096 : 5120;
  dims.heads = is_7b ? 32 : 40;
  dims.ffn = is_7b ? 11008 : 13824;
  dims.vocab = 32000;
  dims.max_seq = 4096;
  dims.tied_head = false;
  return spec::make_model(dims);
}

spec::ModelSpec bloom_176b() {
  spec::ModelDims dims;
  dims.name = "bloom-176b";
  dims.family = spec::Family::gpt2;
  dims.layers = 70;
  dims.hidden = 14336;
  dims.heads = 112;
  dims.ffn = 57344;
  dims.vocab = 250880;
  dims.max_seq = 2048;
  return spec::make_model(dims);
}

plan::Job job_of(spec::ModelSpec model, int64_t seq_len, int64_t sequences) {
  plan::Job job;
  // As in the programs that the rules are about.
  job.backend = spec::cuda_backend(false);
  job.fixed_order = false;
  job.model = std::move(model);
  job.seq_len = seq_len;
  job.global_batch = sequences;
  return job;
}

plan::SearchResult fastest(const plan::Job& job, const spec::Machine& machine, int64_t gpus,
                           const plan::Space& space) {
  plan::SearchOptions options;
  options.gpus = gpus;
  options.space = space;
  return plan::search(job, machine, plan::trireme_stack(), options);
}

double fastest_seconds(const plan::Job& job, const spec::Machine& machine, int64_t gpus,
                       const plan::Space& space) {
  return fastest(job, machine, gpus, space).best.value().price.seconds;
}

ThreeLayouts three_layouts() {
  ThreeLayouts three;
  three.b = {.tp = {8}, .pp = {2}, .zero = {1}};
  three.a = {.tp = {8}, .pp = {1}, .zero = {3}};
  three.c = {.tp = {1}, .pp = {1}, .zero = {3}};
  return three;
}

HandFlops llama3_70b_flops(double seq_len) {
  constexpr double layers = 80, width = 8192, key = 1024, ffn = 28672, vocab = 128256;
  HandFlops flops;
  flops.down = layers * 2 * ffn * width;
  flops.products = layers * 2 * width * (width + 2 * key + width + 2 * ffn) + flops.down;
  flops.attention = layers * 4 * width * (seq_len + 1) / 2;
  flops.head = 2 * width * vocab;
  return flops;
}

sim::Result simulated(const std::string& schedule, int ranks, int micro_batches, int chunks) {
  const schedule::Schedule all = schedule::add_p2p(
      schedule::generate(schedule,
                         {.ranks = ranks, .microbatches = micro_batches, .chunks = chunks})
          .value());
  return sim::simulate(all, sim::uniform_costs(all.stages(), {}, {.f_to_w = 1}, 0), {}, {});
}

}  // namespace trireme::tests
