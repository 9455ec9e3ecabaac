// SPDX-License-Identifier: Apache-2.0
#include "train/generate/generator.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/rng.h"

namespace trireme::train {
namespace {

// A sequence that is being continued in a slot.
struct Active {
  size_t request = 0;
  std::vector<int32_t> tokens;  // of the prompt and sampled
  int64_t sampled = 0;
  uint64_t draw = 0;  // of the first token
};

class Generation {
 public:
  Generation(engine::Decoder& decoder, std::span<const GenerateRequest> requests,
             const GenerateOptions& options, const GenerateEvents& events, const obs::Clock& clock)
      : decoder_(decoder),
        requests_(requests),
        options_(options),
        events_(events),
        clock_(clock),
        slots_(static_cast<size_t>(decoder.plan().sequences)) {}

  GenerateSpeed run() {
    while (true) {
      fill_slots();
      step();
      const bool is_idle =
          std::ranges::none_of(slots_, [](const auto& s) { return s.has_value(); });
      if (is_idle && next_ == requests_.size()) return speed_;
    }
  }

 private:
  int64_t capacity() const { return decoder_.plan().capacity; }

  void fill_slots() {
    for (size_t slot = 0; slot < slots_.size(); ++slot) {
      while (!slots_[slot] && next_ < requests_.size()) begin(slot, next_++);
    }
  }

  void begin(size_t slot, size_t request) {
    const GenerateRequest& asked = requests_[request];
    TRIREME_CHECK(!asked.prompt.empty(), "request {} has an empty prompt", request);
    slots_[slot] = Active{.request = request, .tokens = asked.prompt, .draw = first_draw(asked)};
    if (options_.max_tokens == 0) return end(slot, EndReason::length);
    prefill(slot, capacity());
    sample_next(slot);
  }

  // Computes the last `count` tokens of a sequence.
  void prefill(size_t slot, int64_t count) {
    const std::span<const int32_t> all = slots_[slot]->tokens;
    const auto seen = all.last(std::min(all.size(), static_cast<size_t>(count)));
    const double begin = clock_();
    decoder_.prefill(static_cast<int64_t>(slot), seen);
    speed_.prefill_seconds += clock_() - begin;
    speed_.prompt_tokens += std::ssize(seen);
  }

  void step() {
    next_tokens_.clear();
    std::vector<size_t> advanced;
    for (size_t slot = 0; slot < slots_.size(); ++slot) {
      if (!slots_[slot]) continue;
      const auto at = static_cast<int64_t>(slot);
      if (decoder_.length(at) < capacity()) {
        next_tokens_.push_back({at, slots_[slot]->tokens.back()});
      } else {
        ++speed_.restarts;
        prefill(slot, std::max<int64_t>(1, capacity() / 2));
      }
      advanced.push_back(slot);
    }
    const double begin = clock_();
    decoder_.step(next_tokens_);
    speed_.step_seconds += clock_() - begin;
    speed_.step_tokens += std::ssize(next_tokens_);
    for (const size_t slot : advanced) sample_next(slot);
  }

  void sample_next(size_t slot) {
    Active& active = *slots_[slot];
    const int32_t token = sample(decoder_.logits(static_cast<int64_t>(slot)), options_.sampling,
                                 active.draw + static_cast<uint64_t>(active.sampled));
    if (options_.eos == token) return end(slot, EndReason::eos);
    active.tokens.push_back(token);
    ++active.sampled;
    ++speed_.tokens;
    if (events_.on_token && !events_.on_token(active.request, token)) {
      end(slot, EndReason::stop);
    } else if (active.sampled == options_.max_tokens) {
      end(slot, EndReason::length);
    }
  }

  void end(size_t slot, EndReason reason) {
    const size_t request = slots_[slot]->request;
    slots_[slot].reset();
    if (events_.on_end) events_.on_end(request, reason);
  }

  engine::Decoder& decoder_;
  std::span<const GenerateRequest> requests_;
  const GenerateOptions& options_;
  const GenerateEvents& events_;
  const obs::Clock& clock_;
  std::vector<std::optional<Active>> slots_;
  std::vector<engine::Decoder::Next> next_tokens_;
  size_t next_ = 0;  // request
  GenerateSpeed speed_;
};

}  // namespace

std::string_view name_of(EndReason reason) {
  constexpr std::array<std::string_view, 3> names = {"length", "stop", "eos"};
  return names[static_cast<size_t>(reason)];
}

uint64_t first_draw(const GenerateRequest& request) {
  uint64_t hash = base::hash_of(request.sample);
  for (const int32_t token : request.prompt) {
    hash = base::hash_of(hash ^ static_cast<uint32_t>(token));
  }
  return hash;
}

GenerateSpeed generate(engine::Decoder& decoder, std::span<const GenerateRequest> requests,
                       const GenerateOptions& options, const GenerateEvents& events,
                       const obs::Clock& clock) {
  check(options.sampling);
  TRIREME_CHECK(options.max_tokens >= 0, "{} tokens", options.max_tokens);
  return Generation(decoder, requests, options, events, clock).run();
}

}  // namespace trireme::train
