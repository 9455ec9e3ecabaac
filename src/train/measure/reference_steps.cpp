// SPDX-License-Identifier: Apache-2.0
#include "train/measure/reference_steps.h"

#include <algorithm>

#include "engine/engine.h"
#include "plan/search/confirm.h"
#include "train/measure/random_batches.h"
#include "train/setup/setup.h"

namespace trireme::train {
namespace {

struct Reference {
  spec::ModelDims dims;
  int64_t sequences, seq_len;
};

std::vector<Reference> references(bool is_gpu) {
  spec::ModelDims gpt2{.name = "gpt2", .family = spec::Family::gpt2};
  spec::ModelDims llama{.name = "llama", .family = spec::Family::llama};
  if (is_gpu) {
    gpt2.layers = 4;
    gpt2.hidden = 1024;
    gpt2.heads = 16;
    gpt2.ffn = 4096;
    gpt2.vocab = 32768;
    llama.layers = 4;
    llama.hidden = 2048;
    llama.heads = 16;
    llama.kv_heads = 8;
    llama.ffn = 5632;
    llama.vocab = 32768;
  } else {
    gpt2.layers = llama.layers = 2;
    gpt2.hidden = llama.hidden = 384;
    gpt2.heads = llama.heads = 6;
    gpt2.ffn = 1536;
    llama.ffn = 1024;
    gpt2.vocab = llama.vocab = 1024;
  }
  gpt2.max_seq = is_gpu ? 1024 : 256;
  llama.max_seq = is_gpu ? 4096 : 256;
  const int64_t rows = is_gpu ? 16384 : 512;
  return {{gpt2, rows / gpt2.max_seq, gpt2.max_seq}, {llama, rows / llama.max_seq, llama.max_seq}};
}

// Returns the median over some steps, after a warm-up in which algorithms are selected and graphs
// captured.
double seconds_of(engine::Engine& engine, engine::MicrobatchSource& source, int steps) {
  constexpr int warmup = 3;
  device::Stream& compute = engine.compute();
  for (int i = 0; i < warmup; ++i) engine.step(source, 1e-4);
  compute.synchronize();
  std::vector<device::Event> events = {compute.record_timed()};
  for (int i = 0; i < steps; ++i) {
    engine.step(source, 1e-4);
    events.push_back(compute.record_timed());
  }
  compute.synchronize();
  std::vector<double> seconds;
  for (size_t i = 1; i < events.size(); ++i) {
    seconds.push_back(compute.seconds_between(events[i - 1], events[i]));
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

}  // namespace

std::vector<plan::TimedStep> reference_steps(const config::System& system, bool is_quick,
                                             const std::function<void(std::string_view)>& done) {
  std::vector<plan::TimedStep> all;
  const bool is_gpu = make_platform(system).is_gpu();
  for (const Reference& reference : references(is_gpu)) {
    Platform platform = make_platform(system);
    plan::TimedStep step;
    step.job.model = spec::make_model(reference.dims);
    step.job.seq_len = reference.seq_len;
    step.job.global_batch = reference.sequences;
    step.job.backend = platform.backend;
    step.layout.micro_batch = reference.sequences;
    step.layout.precision = is_gpu ? spec::Precision::bf16 : spec::Precision::fp32;
    const spec::Plan plan = spec::solve_or_throw(
        step.job.model, {.seq_len = reference.seq_len, .global_batch = reference.sequences},
        step.layout, platform.backend);
    engine::Engine engine(*platform.device, step.job.model, plan, platform.backend,
                          {.capture = true});
    RandomBatches source(reference.dims.vocab, reference.sequences, reference.seq_len);
    step.seconds = seconds_of(engine, source, is_quick ? 3 : 9);
    all.push_back(step);
    if (done) done(fmt::format("step of {}", reference.dims.name));
  }
  return all;
}

}  // namespace trireme::train
