// SPDX-License-Identifier: Apache-2.0
// Layouts as text on the command line: "tp=8 sp pp=4 interleaved=3 dp=16 zero=1 micro=2 full".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "spec/layout/layout.h"

namespace trireme::spec {

// Reads words, separated by spaces or commas:
//   tp=N cp=N pp=N           ranks along an axis
//   ep=N etp=N               ranks that share the experts, and each expert; row-budget=1.5
//                            overflow=drop capacity=1.25: see Layout
//   kind=K slices=K          context parallelism: gather, zigzag, ...; ulysses=N in products
//   dp=N                     all data ranks; default: the rest of `ranks`, or 1 if `ranks` is 0
//   zero=0..3 shard=N        ZeRO stage; ranks that share a copy, default: all data ranks
//   sp                       sequence parallel
//   a schedule's name        interleaved also with its chunks, as interleaved=3
//   micro=N accumulate=N     sequences of a micro-batch; micro-batches of a worker
//   selective full blocks=N  recompute; of the first N blocks only
//   a recipe's name          fp32, bf16, fp16, fp8-tensor (or fp8), fp8-block, fp8-delayed, fp4;
//                            grads=bf16 masters=u16 sums=bf16
//   bf16-first=N bf16-last=N blocks at both ends that stay in bf16 under a recipe of fp8, and
//   bf16-blocks=3+7          these blocks, counted from 0
//   fast l1                  not deterministic; deterministic
// and the rarely needed words that layout_words() lists. Fields that no word sets stay as in
// `others`, by default open for settle(); of data ranks only the ZeRO stage does. `ranks` 0: as
// many as the degrees multiply to. Throws ConfigError that names the word.
Layout layout_from_text(std::string_view text, int64_t ranks, const Layout& others = {});

// Returns the same words. Leaves out fields that settle() would fill in with the same value, and
// fields at their defaults. A custom schedule is written as "custom", which is not read back.
std::string to_text(const Layout&);

// Returns all words, for messages.
std::string layout_words();

}  // namespace trireme::spec
