// SPDX-License-Identifier: Apache-2.0
// Continuations: the text of every request of `generate` while its tokens arrive, in any order, and
// what is printed of them: request after request, each as soon as it is known.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"
#include "train/generate/generator.h"
#include "train/generate/stop_text.h"
#include "train/generate/text_codec.h"

namespace trireme::cli {

struct Continuation {
  std::string text;  // without the prompt and the stop string; empty without a codec
  std::vector<int32_t> tokens;
  train::EndReason end = train::EndReason::length;
};

// Receives the pieces of a request's output in order: begin, any number of texts, end.
struct ContinuationPrinter {
  std::function<void(size_t request)> begin;
  std::function<void(std::string_view text)> text;
  std::function<void()> end;
};

class Continuations {
 public:
  // Without a codec (null) the text that is printed is the list of token ids. The codec must
  // outlive this object.
  Continuations(size_t requests, const train::TextCodec* codec, bool prints_ids,
                const std::vector<std::string>& stops, ContinuationPrinter printer);

  // The events of train::generate().
  bool add(size_t request, int32_t token);
  void end(size_t request, train::EndReason reason);

  const std::vector<Continuation>& results() const { return results_; }

 private:
  struct State {
    std::unique_ptr<text::StreamingDecoder> decoder;
    train::StopText stop;
    std::string unprinted;
    bool is_done = false;
  };
  void emit(size_t request, const std::string& text);
  void print();

  std::vector<Continuation> results_;
  std::vector<State> states_;
  const bool prints_ids_;
  ContinuationPrinter printer_;
  size_t printing_ = 0;  // request
  bool has_begun_ = false;
};

}  // namespace trireme::cli
