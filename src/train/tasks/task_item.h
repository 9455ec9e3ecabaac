// SPDX-License-Identifier: Apache-2.0
// Multiple-choice tasks: a context, several endings and the index of the right one, as HellaSwag
// and similar benchmarks ask them. How they become tokens follows EleutherAI's
// lm-evaluation-harness.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "train/generate/text_codec.h"

namespace trireme::train {

struct TaskItem {
  std::string context;
  std::vector<std::string> choices;  // at least two
  size_t label = 0;                  // index of the right choice
};

// Reads one line of JSON: "context" or "ctx", "choices" or "endings", "label" or "gold" (an integer
// or its text); other keys are ignored. Throws ConfigError that begins with `origin`
// ("tasks.jsonl:3").
TaskItem task_from_json(std::string_view line, std::string_view origin);

// A context and one ending as tokens.
struct TaskTokens {
  std::vector<int32_t> tokens;  // of both
  size_t ending = 0;            // tokens of the ending, the last ones; at least one
};

// Returns the tokens of context + delimiter + ending. The delimiter is left out if the context ends
// or the ending begins with white space. White space at the end of the context counts as the
// beginning of the ending, and the context's part is as long as its own encoding. Without a context
// the tokens begin with the codec's start token. Throws ConfigError that begins with `origin` if
// the ending has no token or nothing stands before it.
TaskTokens task_tokens(const TextCodec&, std::string_view context, std::string_view ending,
                       std::string_view delimiter, std::string_view origin);

}  // namespace trireme::train
