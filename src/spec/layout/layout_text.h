// SPDX-License-Identifier: Apache-2.0
// Layouts as people type them: "tp=8 sp pp=4 interleaved=3 dp=16 zero=1 micro=2 full".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "spec/layout/layout.h"

namespace trireme::spec {

// Reads words, separated by spaces or commas:
//   tp=N cp=N pp=N ep=N      ranks along an axis
//   dp=N                     all data ranks; what is left of `ranks` where it is not given
//   zero=0..3 shard=N        ZeRO stage; ranks that share a copy, all data ranks if not given
//   sp                       sequence parallel
//   a schedule's name        interleaved also with its chunks, as interleaved=3
//   micro=N accumulate=N     sequences of a micro-batch; micro-batches of a worker
//   selective full blocks=N  recompute; of the first N blocks only
//   fp32 bf16 fp8 fp4        precision; grads=bf16 masters=u16 sums=bf16
//   fast l1                  determinism
// and the rarely needed ones that layout_words() lists. Fields without a word stay open for
// settle(). Throws ConfigError that names the word.
Layout layout_from_text(std::string_view text, int64_t ranks);

// The same words. What settle() would fill in is left out, and so is what is as in a fresh Layout.
// A custom schedule has no words: "custom" stands for it, and is not read back.
std::string to_text(const Layout&);

// All words, for messages.
std::string layout_words();

}  // namespace trireme::spec
