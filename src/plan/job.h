// SPDX-License-Identifier: Apache-2.0
// Job and Layout: what is to be trained, and one way to spread it over processors, as plain data.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "spec/facts.h"
#include "spec/machine.h"
#include "spec/model.h"

namespace trireme::plan {

// A feed-forward of which every token uses some parts.
struct Experts {
  int64_t count = 0, chosen = 0;  // chosen: by one token
  int64_t ffn = 0;                // width of one
  int64_t shared_ffn = 0;         // width of those that every token uses, together
  int64_t dense_layers = 0;       // blocks, the first ones, with an ordinary feed-forward
  bool operator==(const Experts&) const = default;
};

struct Job {
  spec::ModelSpec model;  // of a model with experts: with the ordinary feed-forward
  std::optional<Experts> experts;
  int64_t seq_len = 0;
  int64_t global_batch = 0;  // sequences of a step
  // What the engine computes with, by system.determinism and the machine (backend_for).
  spec::Backend backend = spec::cuda_backend(true);
  // Tokens of a step at which progress by token has fallen to half; 0: not known.
  double critical_batch_tokens = 0;

  int64_t tokens() const { return seq_len * global_batch; }
};

// Returns the engine's back end on a machine; a machine without units for bf16 is a CPU.
spec::Backend backend_for(const spec::Machine&, bool deterministic);

enum class Pipe : uint8_t {
  gpipe,
  one_f_one_b,
  interleaved,
  zb_h1,
  zb_h2,
  zb_v,
  dualpipe_v,
  count
};
std::string_view name_of(Pipe);  // as schedule/catalogue.h
std::optional<Pipe> pipe_from(std::string_view name);
int fixed_chunks(Pipe);  // of a rank; 0: as many as wanted

enum class Precision : uint8_t { fp32, bf16, fp8, fp4, count };
std::string_view name_of(Precision);
std::optional<Precision> precision_from(std::string_view name);
std::optional<spec::Recompute> recompute_from(std::string_view name);

// Which axis has neighbouring ranks, after tp and cp, which are always innermost.
enum class Placement : uint8_t { dp_inside, pp_inside, count };
std::string_view name_of(Placement);

struct Layout {
  int tp = 1, cp = 1, pp = 1, dp = 1;  // their product is the number of processors
  int ep = 1;                          // experts are spread over dp * cp
  int zero = 0;                        // stage, over dp
  int chunks = 1;                      // stages of a rank
  Pipe pipe = Pipe::one_f_one_b;
  int64_t micro_batch = 1;  // sequences
  spec::Recompute recompute = spec::Recompute::none;
  bool sequence_parallel = false;
  Precision precision = Precision::bf16;
  Placement placement = Placement::dp_inside;
  bool operator==(const Layout&) const = default;

  int64_t processors() const { return int64_t{tp} * cp * pp * dp; }
  int64_t micro_batches(const Job& job) const { return job.global_batch / (dp * micro_batch); }
};
// "tp 8 sp, pp 4 interleaved x 3, dp 32 ZeRO-1, micro-batch 2, full recompute, bf16"
std::string words(const Layout&);

}  // namespace trireme::plan
