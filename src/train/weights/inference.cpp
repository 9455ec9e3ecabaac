// SPDX-License-Identifier: Apache-2.0
#include "train/weights/inference.h"

#include <algorithm>
#include <optional>

#include "base/check.h"
#include "base/error.h"
#include "spec/recipe.h"
#include "train/setup/fit.h"

namespace trireme::train {
namespace {

// Fills a micro-batch with given tokens and labels, in equal sequences.
class GivenTokens final : public engine::MicrobatchSource {
 public:
  GivenTokens(std::span<const int32_t> tokens, std::span<const int32_t> labels, int64_t sequences)
      : tokens_(tokens), labels_(labels), sequences_(sequences) {}

  void fill(int /*index*/, const engine::HostMicrobatch& out) override {
    const auto total = static_cast<int64_t>(out.tokens.size());
    engine::set_equal_sequences(out, sequences_, total / sequences_);
    std::fill(out.tokens.begin(), out.tokens.end(), 0);
    std::fill(out.labels.begin(), out.labels.end(), -1);
    std::copy(tokens_.begin(), tokens_.end(), out.tokens.begin());
    std::copy(labels_.begin(), labels_.end(), out.labels.begin());
  }

 private:
  std::span<const int32_t> tokens_, labels_;
  int64_t sequences_;
};

}  // namespace

Inference::Inference(const std::filesystem::path& weights, const InferenceOptions& o)
    : Inference(*std::make_unique<HfSource>(weights), o) {}

Inference::Inference(WeightsSource& weights, const InferenceOptions& o)
    : dims_(weights.dims()), sequences_(o.sequences) {
  const spec::ModelSpec model = spec::make_model(dims_);
  seq_len_ = o.seq_len == 0 ? model.max_seq : o.seq_len;
  platform_ = make_platform(o.system);
  spec::Layout layout;
  layout.micro_batch = sequences_;
  layout.recompute = spec::Recompute::full;
  const std::optional<spec::Precision> precision = spec::precision_from_name(o.dtype);
  TRIREME_CHECK(precision.has_value(), "dtype {}", o.dtype);
  layout.precision = *precision;
  layout.bf16_blocks = o.bf16_blocks;
  // Codes are made of the fp32 weights of the training state.
  const FitJob job = make_fit_job(model, platform_.backend,
                                  {.seq_len = seq_len_,
                                   .document_mask = o.document_mask,
                                   .inference = !spec::is_fp8(*precision)},
                                  layout);
  check_fits(job, platform_, 1, {.micro_batch = o.batch_option});
  engine_ = std::make_unique<engine::Engine>(*platform_.device, model, job.plan, platform_.backend,
                                             engine::EngineOptions{});
  weights.read([this](const std::string& name, std::span<const float> values) {
    engine_->write_weights(name, values);
  });
}

std::vector<SequenceLoss> Inference::losses(std::span<const int32_t> tokens,
                                            std::span<const int32_t> labels) {
  TRIREME_CHECK(static_cast<int64_t>(tokens.size()) == sequences_ * seq_len_ &&
                    tokens.size() == labels.size(),
                "{} tokens, {} labels", tokens.size(), labels.size());
  GivenTokens source(tokens, labels, sequences_);
  return losses(source, [labels] { return labels; });
}

std::vector<SequenceLoss> Inference::losses(
    engine::MicrobatchSource& source, const std::function<std::span<const int32_t>()>& labels) {
  const std::vector<float> by_token = token_losses(source);
  return sequence_losses(by_token, labels(), sequences_);
}

std::vector<float> Inference::token_losses(engine::MicrobatchSource& source) {
  std::vector<float> by_token(static_cast<size_t>(sequences_ * seq_len_));
  engine_->evaluate(source, by_token);
  return by_token;
}

std::vector<float> Inference::logits(std::span<const int32_t> tokens) {
  TRIREME_CHECK(!tokens.empty() && sequences_ == 1, "{} tokens, {} sequences", tokens.size(),
                sequences_);
  const auto seen = tokens.last(std::min(tokens.size(), static_cast<size_t>(seq_len_)));
  GivenTokens source(seen, {}, 1);
  return engine_->logits(source, static_cast<int64_t>(seen.size()) - 1);
}

}  // namespace trireme::train
