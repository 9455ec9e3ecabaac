// SPDX-License-Identifier: Apache-2.0
// generate(): continues many prompts, as many at once as the decoder has slots. A slot takes the
// next prompt as soon as its sequence has ended.
//
// The tokens of a prompt depend on the prompt, the sampling options and the sample's number only,
// not on the other prompts, their order or the number of slots.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "engine/decode/decoder.h"
#include "obs/clock.h"
#include "train/weights/sample.h"

namespace trireme::train {

struct GenerateRequest {
  std::vector<int32_t> prompt;  // at least one token
  uint64_t sample = 0;          // continuations of one prompt differ in it
};

enum class EndReason : uint8_t { length, stop, eos };
std::string_view name_of(EndReason);  // "length", "stop", "eos"

struct GenerateOptions {
  int64_t max_tokens = 0;
  SampleOptions sampling;
  std::optional<int32_t> eos;  // this token ends a sequence and is not part of it
};

// Calls come from the thread of generate(). `on_token` returns false to end the sequence (reason
// `stop`); the token is part of it.
struct GenerateEvents {
  std::function<bool(size_t request, int32_t token)> on_token;
  std::function<void(size_t request, EndReason reason)> on_end;
};

struct GenerateSpeed {
  int64_t prompt_tokens = 0;  // computed in prefills, also those of a context that was full
  int64_t tokens = 0;         // sampled
  int64_t step_tokens = 0;    // computed in steps
  double prefill_seconds = 0, step_seconds = 0;
  int64_t restarts = 0;  // full contexts
};

// A context of seq_len tokens that is full is replaced by its last seq_len / 2 tokens, at positions
// from 0 on; of a longer prompt the last seq_len tokens are read. REQUIRES: options pass check().
GenerateSpeed generate(engine::Decoder&, std::span<const GenerateRequest>, const GenerateOptions&,
                       const GenerateEvents&, const obs::Clock& clock = obs::steady_seconds);

// The number of the first random draw of a request; token i uses the i-th from there.
uint64_t first_draw(const GenerateRequest&);

}  // namespace trireme::train
