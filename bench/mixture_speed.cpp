// SPDX-License-Identifier: Apache-2.0
// Measures how fast one core fills batches from a mixture of eight sources in memory-mapped u16
// files, from one source, and from packed documents; how long a resumed run takes to find its
// position; and how fast documents are packed.
//   mixture_speed [MEGATOKENS]   tokens of each source, 16 by default; files in the temporary
//   folder
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "data/files/token_writer.h"
#include "data/mixture/mixed_sampler.h"
#include "data/packing/packed_sampler.h"
#include "data/samples/batch.h"
#include "data/samples/sampler.h"

namespace {

using namespace trireme;

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Returns a data set of random tokens in documents of 20 to 2019 tokens.
std::unique_ptr<data::TokenData> write_source(const std::filesystem::path& path, int64_t tokens,
                                              uint64_t seed) {
  const auto writer = data::write_tokens(path, {.vocab = 50'000});
  std::vector<int32_t> document;
  for (uint64_t number = 0; writer->tokens() < tokens; ++number) {
    document.resize(20 + base::rng_below(seed, number, 2000));
    for (size_t i = 0; i < document.size(); ++i) {
      document[i] = static_cast<int32_t>((i * 2654435761U + number) % 50'000);
    }
    writer->write(document);
    writer->end_document();
  }
  writer->finish();
  return data::open_tokens(path, {});
}

// Returns the best rate of three passes, in million tokens a second.
double fill_rate(const data::SampleProvider& provider, int64_t samples) {
  constexpr int64_t batch_samples = 8;
  std::vector<int64_t> positions(batch_samples);
  data::Batch batch;
  double best = 0;
  for (int pass = 0; pass < 3; ++pass) {
    const auto begin = std::chrono::steady_clock::now();
    for (int64_t first = 0; first + batch_samples <= samples; first += batch_samples) {
      for (int64_t i = 0; i < batch_samples; ++i) positions[static_cast<size_t>(i)] = first + i;
      data::fill_batch(provider, positions, batch);
    }
    const int64_t tokens = samples / batch_samples * batch_samples * provider.seq_len();
    best = std::max(best, static_cast<double>(tokens) / seconds_since(begin));
  }
  return best / 1e6;
}

void measure(const std::vector<std::unique_ptr<data::TokenData>>& sets, int64_t seq_len,
             bool document_mask) {
  std::vector<std::unique_ptr<data::Sampler>> samplers;
  std::vector<const data::SampleProvider*> sources;
  data::RunPhases run{.phases = {{.name = "all",
                                  .weights = {0.3, 0.2, 0.15, 0.1, 0.1, 0.08, 0.05, 0.02},
                                  .seq_len = seq_len,
                                  .global_batch = 8}},
                      .seed = 1};
  int64_t tokens = 0;
  for (size_t i = 0; i < sets.size(); ++i) {
    samplers.push_back(std::make_unique<data::Sampler>(
        *sets[i],
        data::SamplerOptions{
            .seed = 1, .seq_len = seq_len, .document_mask = document_mask, .vocab = 50'000}));
    sources.push_back(samplers.back().get());
    run.sources.push_back(
        {.name = fmt::format("source{}", i), .epoch_tokens = samplers.back()->samples() * seq_len});
    tokens += run.sources.back().epoch_tokens;
  }
  run.steps = tokens / seq_len / 8;
  const data::Phases phases(run);
  const data::MixedSampler mixed(phases, sources);
  fmt::print(
      "seq_len {:>5}, document mask {:<3}  8 sources {:>6.0f}  1 source {:>6.0f} "
      "million tokens/s\n",
      seq_len, document_mask ? "on" : "off", fill_rate(mixed, mixed.samples()),
      fill_rate(*sources.front(), sources.front()->samples()));
}

void measure_packing(const data::TokenData& set, int64_t seq_len) {
  const auto begin = std::chrono::steady_clock::now();
  const data::PackingTable table = data::PackingTable::pack(set, {.seq_len = seq_len});
  const double seconds = seconds_since(begin);
  const data::PackedSampler sampler(set, table, {.seed = 1, .vocab = 50'000});
  fmt::print("packed: {}; {:.2f} million documents/s packed, {:.0f} million tokens/s filled\n",
             table.stats().description(seq_len),
             static_cast<double>(table.stats().documents) / seconds / 1e6,
             fill_rate(sampler, sampler.samples()));
}

void measure_seek() {
  for (const double smallest : {0.05, 0.001, 0.0001}) {
    data::RunPhases run{.phases = {{.name = "all", .seq_len = 1, .global_batch = 1}},
                        .steps = int64_t{1} << 40,
                        .seed = 1};
    for (int i = 0; i < 8; ++i) {
      run.sources.push_back({.name = fmt::format("source{}", i), .epoch_tokens = 1 << 20});
      run.phases[0].weights.push_back(i == 0 ? smallest : (1 - smallest) / 7);
    }
    const data::Phases phases(run);
    double worst = 0;
    for (int64_t i = 1; i <= 5; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      phases.origin(i * 1'000'000'007);
      worst = std::max(worst, seconds_since(begin));
    }
    fmt::print("smallest share {:>6}: a position above 10^9 is found in {:.2f} ms (worst of 5)\n",
               smallest, 1e3 * worst);
  }
}

}  // namespace

int main(int count, char** arguments) {
  const int64_t tokens = (count > 1 ? std::atoll(arguments[1]) : 16) * 1'000'000;
  const auto folder = std::filesystem::temp_directory_path() /
                      ("trireme_mixture_speed_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  std::vector<std::unique_ptr<data::TokenData>> sets;
  for (uint64_t i = 0; i < 8; ++i) {
    sets.push_back(write_source(folder / std::to_string(i), tokens, i));
  }
  for (const int64_t seq_len : {512, 2048, 8192}) {
    for (const bool document_mask : {false, true}) measure(sets, seq_len, document_mask);
  }
  for (const int64_t seq_len : {2048, 8192}) measure_packing(*sets.front(), seq_len);
  measure_seek();
  sets.clear();
  std::filesystem::remove_all(folder);
}
