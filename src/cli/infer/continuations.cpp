// SPDX-License-Identifier: Apache-2.0
#include "cli/infer/continuations.h"

#include <utility>

namespace trireme::cli {

Continuations::Continuations(size_t requests, const train::TextCodec* codec, bool prints_ids,
                             const std::vector<std::string>& stops, ContinuationPrinter printer)
    : results_(requests), prints_ids_(prints_ids), printer_(std::move(printer)) {
  for (size_t i = 0; i < requests; ++i) {
    states_.push_back({.decoder = codec != nullptr ? codec->streaming_decoder() : nullptr,
                       .stop = train::StopText(stops),
                       .unprinted = {}});
  }
}

bool Continuations::add(size_t request, int32_t token) {
  State& state = states_[request];
  results_[request].tokens.push_back(token);
  if (prints_ids_) state.unprinted += std::to_string(token) + " ";
  if (state.decoder) emit(request, state.stop.push(state.decoder->push(token)));
  print();
  return !state.stop.is_stopped();
}

void Continuations::end(size_t request, train::EndReason reason) {
  State& state = states_[request];
  results_[request].end = reason;
  if (state.decoder && !state.stop.is_stopped()) {
    emit(request, state.stop.push(state.decoder->finish()));
    if (state.stop.is_stopped()) {
      results_[request].end = train::EndReason::stop;
    } else {
      emit(request, state.stop.finish());
    }
  }
  state.is_done = true;
  print();
}

void Continuations::emit(size_t request, const std::string& text) {
  results_[request].text += text;
  if (!prints_ids_) states_[request].unprinted += text;
}

void Continuations::print() {
  for (; printing_ < states_.size(); ++printing_) {
    State& state = states_[printing_];
    if (!has_begun_) {
      if (state.unprinted.empty() && !state.is_done) return;
      printer_.begin(printing_);
      has_begun_ = true;
    }
    if (!state.unprinted.empty()) printer_.text(std::exchange(state.unprinted, {}));
    if (!state.is_done) return;
    printer_.end();
    has_begun_ = false;
  }
}

}  // namespace trireme::cli
