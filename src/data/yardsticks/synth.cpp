// SPDX-License-Identifier: Apache-2.0
#include "data/yardsticks/synth.h"

#include <fmt/core.h>

#include <vector>

#include "base/error.h"
#include "data/files/token_writer.h"
#include "data/yardsticks/markov.h"

namespace trireme::data {
namespace {

void check_options(const SynthOptions& options) {
  constexpr int64_t max_contexts = 1 << 20, longest = 1 << 28;
  const auto refuse = [](const std::string& what) {
    throw base::ConfigError("data synth: " + what);
  };
  if (options.vocab < 2 || options.vocab > max_contexts) {
    refuse(fmt::format("vocab = {}; allowed: 2 .. {}", options.vocab, max_contexts));
  }
  if (options.order < 0) refuse(fmt::format("order = {}; allowed: 0 and up", options.order));
  int64_t contexts = 1;
  for (int i = 0; i < options.order && contexts <= max_contexts; ++i) contexts *= options.vocab;
  // The table of transitions is contexts * vocab.
  if (contexts > max_contexts || contexts * options.vocab > (int64_t{1} << 26)) {
    refuse(
        fmt::format("vocab {} with order {} has too many contexts; allowed: vocab^order <= {} and "
                    "vocab^(order + 1) <= {}",
                    options.vocab, options.order, max_contexts, 1 << 26));
  }
  if (!(options.sharpness >= 0 && options.sharpness <= 100)) {
    refuse(fmt::format("sharpness = {}; allowed: 0 .. 100", options.sharpness));
  }
  if (options.documents < 1) refuse(fmt::format("{} documents", options.documents));
  if (options.document_tokens < 1 || options.document_tokens > longest) {
    refuse(
        fmt::format("documents of {} tokens; allowed: 1 .. {}", options.document_tokens, longest));
  }
}

}  // namespace

SynthReport synthesize(const SynthOptions& options) {
  check_options(options);
  const auto writer =
      write_tokens(options.output, {.format = options.format, .vocab = options.vocab});
  const MarkovSource source(options.seed, options.vocab, options.order, options.sharpness);
  std::vector<int32_t> document(static_cast<size_t>(options.document_tokens));
  for (int64_t i = 0; i < options.documents; ++i) {
    source.generate(static_cast<uint64_t>(i), document);
    writer->write(document);
    writer->end_document();
  }
  writer->finish();
  return {writer->documents(), writer->tokens(), source.entropy_rate()};
}

}  // namespace trireme::data
