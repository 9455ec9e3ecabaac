// SPDX-License-Identifier: Apache-2.0
// Measures how fast the decoder continues sequences, beside the floor: the time to read every
// weight once per step, and the cache, at the memory bandwidth that a plain read reaches in the
// same run. Weights are random. A line per number of sequences: tokens per second, seconds of a
// step, and how many times the floor that is.
//
//   generate_speed gpt2-124m fp32 [cpu|cuda] [context] [threads]
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/system/threads.h"
#include "config/files/model_file.h"
#include "kernels/ops.h"
#include "spec/facts/facts.h"
#include "train/generate/loaded_decoder.h"

namespace {

using namespace trireme;

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class RandomWeights final : public train::WeightsSource {
 public:
  explicit RandomWeights(spec::ModelDims dims) : dims_(std::move(dims)) {}
  const spec::ModelDims& dims() const override { return dims_; }
  void read(const ckpt::WriteParam& write) override {
    const spec::ModelSpec model = spec::make_model(dims_);
    std::vector<float> noise(1 << 16);
    for (size_t i = 0; i < noise.size(); ++i) noise[i] = base::rng_normal(1, i, 0.02F);
    for (int layer = 0; layer < static_cast<int>(model.layers.size()); ++layer) {
      for (const spec::Param& param : spec::params_of(model, layer)) {
        if (param.shard.shape.empty() || param.tied_copy) continue;
        int64_t count = 1;
        for (const int64_t size : param.shard.shape) count *= size;
        std::vector<float> values(static_cast<size_t>(count));
        for (size_t i = 0; i < values.size(); ++i) values[i] = noise[i % noise.size()];
        write(param.shard.name, values);
      }
    }
  }

 private:
  spec::ModelDims dims_;
};

// Bytes per second of a parallel read on the host.
double host_bandwidth(int threads) {
  const std::vector<uint64_t> memory((512U << 20) / 8, 1);
  base::ThreadPool pool(threads);
  constexpr int64_t part = 1 << 18;
  const int64_t parts = std::ssize(memory) / part;
  std::vector<uint64_t> sums(static_cast<size_t>(parts));
  double best = 0;
  for (int run = 0; run < 8; ++run) {
    const double begin = seconds();
    pool.for_each(parts, [&](int64_t p) {
      const uint64_t* from = memory.data() + p * part;
      uint64_t sum = 0;
      for (int64_t i = 0; i < part; ++i) sum += from[i];
      sums[static_cast<size_t>(p)] = sum;
    });
    best = std::max(best, static_cast<double>(memory.size() * 8) / (seconds() - begin));
  }
  return best;
}

// Bytes per second that a copy in the GPU's memory reads and writes.
double device_bandwidth(device::Device& device) {
  constexpr int64_t bytes = int64_t{1} << 30;
  const device::Buffer memory(device, device::Mem::scratch, 2 * bytes, "bandwidth");
  const base::TensorSpec half{{bytes}, base::DType::u8};
  const std::unique_ptr<device::Stream> stream = device.make_stream("bandwidth");
  double best = 0;
  for (int run = 0; run < 8; ++run) {
    const device::Event begin = stream->record_timed();
    stream->copy_bytes(device::view_of(memory.data() + bytes, half),
                       device::view_of(memory.data(), half));
    const device::Event end = stream->record_timed();
    stream->synchronize();
    best = std::max(best, 2.0 * bytes / stream->seconds_between(begin, end));
  }
  return best;
}

}  // namespace

int main(int count, char** words) {
  const std::vector<std::string> args(words + 1, words + count);
  if (args.size() < 2) {
    fmt::print(stderr, "usage: generate_speed MODEL fp32|bf16 [cpu|cuda] [context] [threads]\n");
    return 2;
  }
  const spec::ModelDims dims = config::model_from_file(args[0], {"configs/models"});
  const spec::ModelSpec model = spec::make_model(dims);
  config::System system;
  system.device = args.size() > 2 ? args[2] : "cpu";
  const int64_t context = args.size() > 3 ? std::stoll(args[3]) : 128;
  system.threads = args.size() > 4 ? std::stoll(args[4]) : 0;
  RandomWeights weights(dims);
  double bandwidth = 0;
  for (const int64_t sequences : {1, 2, 4, 8}) {
    constexpr int64_t steps = 32;
    train::LoadedDecoder loaded(weights, {.sequences = sequences,
                                          .seq_len = std::min(model.max_seq, context + steps + 8),
                                          .dtype = args[1],
                                          .system = system});
    engine::Decoder& decoder = loaded.decoder();
    if (bandwidth == 0) {
      bandwidth = loaded.platform().is_gpu() ? device_bandwidth(*loaded.platform().device)
                                             : host_bandwidth(train::thread_count(system.threads));
      fmt::print("{} {} on {}: {:.1f} GB/s, {} parameters, contexts of {} tokens\n", args[0],
                 args[1], loaded.platform().hardware, bandwidth / 1e9, spec::parameter_count(model),
                 context);
    }
    std::vector<int32_t> prompt;
    for (int64_t t = 0; t < context; ++t) {
      prompt.push_back(static_cast<int32_t>(t * 7919 % spec::vocab_of(model)));
    }
    double prefill = 1e9;
    for (int64_t slot = 0; slot < sequences; ++slot) {
      const double begin = seconds();
      decoder.prefill(slot, prompt);
      prefill = std::min(prefill, seconds() - begin);
    }
    std::vector<engine::Decoder::Next> next;
    for (int64_t slot = 0; slot < sequences; ++slot) next.push_back({slot, 5});
    for (int i = 0; i < 4; ++i) decoder.step(next);
    std::vector<double> times;
    for (int64_t i = 0; i < steps; ++i) {
      const double begin = seconds();
      decoder.step(next);
      times.push_back(seconds() - begin);
    }
    std::ranges::sort(times);
    const double step = times[times.size() / 2];
    const double floor =
        static_cast<double>(spec::decode_step_bytes(model, decoder.plan(), context + 16)) /
        bandwidth;
    fmt::print(
        "{} sequences: {:.1f} tokens/s, step {:.3f} ms, floor {:.3f} ms, {:.2f} of the "
        "floor; prompt {:.0f} tokens/s{}\n",
        sequences, static_cast<double>(sequences) / step, step * 1e3, floor * 1e3, step / floor,
        static_cast<double>(context) / prefill, decoder.is_captured() ? "; captured" : "");
  }
}
