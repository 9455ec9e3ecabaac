// SPDX-License-Identifier: Apache-2.0
#include "train/batches/batches.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "base/rng.h"
#include "base/text/json.h"
#include "data/files/content.h"
#include "data/files/vocabulary.h"
#include "obs/clock.h"
#include "spec/parallel/data_parallel.h"

namespace trireme::train {
namespace {

void copy_batch(const data::Batch& from, const engine::HostMicrobatch& to) {
  TRIREME_CHECK(from.tokens.size() == to.tokens.size(), "a batch of {} tokens for {}",
                from.tokens.size(), to.tokens.size());
  std::copy(from.tokens.begin(), from.tokens.end(), to.tokens.begin());
  std::copy(from.labels.begin(), from.labels.end(), to.labels.begin());
  std::copy(from.positions.begin(), from.positions.end(), to.positions.begin());
  std::copy(from.seq_offsets.begin(), from.seq_offsets.end(), to.seq_offsets.begin());
}

std::unique_ptr<data::TokenData> open(const config::Config& c, const std::string& path,
                                      int64_t vocab) {
  if (path.empty()) {
    throw base::ConfigError(
        "training.dataset_path is empty: name a data set or a text with --data (trireme data build "
        "makes data sets of texts)");
  }
  const data::TokenFormat format = data::token_format_from_name(c.training.dataset_format);
  auto data = data::open_tokens(
      path,
      {.format = format,
       .type = format == data::TokenFormat::nanogpt ? c.training.dataset_dtype : std::string()});
  // Takes well below a second. In larger data every sample is checked when it is read.
  constexpr int64_t max_scanned = 1 << 27;
  if (data->tokens() <= max_scanned) data::check_vocabulary(*data, vocab, {});
  return data;
}

// Returns the split of a step into micro-batches, over all ranks.
data::BatchSplit whole_step(const spec::Plan& plan) {
  const int count = plan.layout.logical_dp * spec::worker_microbatches(plan);
  const data::BatchSplit split{.global_batch = count * plan.layout.micro_batch,
                               .micro_batches = count};
  data::check_split(split);
  return split;
}

std::vector<int> microbatches_of(const spec::Plan& plan, const spec::Coord& coord) {
  std::vector<int> all;
  for (int index = 0; index < plan.schedule.microbatches; ++index) {
    all.push_back(static_cast<int>(spec::global_microbatch(plan, coord, index)));
  }
  return all;
}

}  // namespace

DataSets::DataSets(const config::Config& c, int64_t vocab)
    : train_data_(open(c, c.training.dataset_path, vocab)) {
  data::SamplerOptions options{.seed = static_cast<uint64_t>(c.debug.seed),
                               .seq_len = c.training.seq_len,
                               .document_mask = c.training.document_mask,
                               .vocab = vocab};
  const bool is_split_off = c.validation.enable && c.validation.dataset_path.empty();
  if (is_split_off) options.validation_fraction = c.validation.split;
  train_ = std::make_unique<data::Sampler>(*train_data_, options);
  if (!c.validation.enable) return;
  options.split = is_split_off ? data::Split::validation : data::Split::whole;
  if (!is_split_off) validation_data_ = open(c, c.validation.dataset_path, vocab);
  validation_ =
      std::make_unique<data::Sampler>(is_split_off ? *train_data_ : *validation_data_, options);
}

base::Json DataSets::identity() const {
  const auto described = [](const data::TokenData& data) {
    const data::ContentId id = data::content_id(data);
    return base::Json{{"tokens", id.tokens},
                      {"token_hash", id.token_hash},
                      {"documents", id.documents},
                      {"document_hash", id.document_hash}};
  };
  const data::SamplerOptions& options = train_->options();
  base::Json json = {{"training", described(*train_data_)},
                     {"training_samples", train_->samples()},
                     {"held_out_fraction", options.validation_fraction},
                     {"document_mask", options.document_mask},
                     {"seed", options.seed},
                     {"seq_len", options.seq_len}};
  json["validation"] = validation_data_ ? described(*validation_data_) : base::Json();
  json["validation_samples"] = validation_ ? validation_->samples() : 0;
  return json;
}

std::string DataSets::changed() const {
  std::string all = train_data_->changed();
  const std::string held_out = validation_data_ ? validation_data_->changed() : "";
  if (!all.empty() && !held_out.empty()) all += "; ";
  return all + held_out;
}

TrainBatches::TrainBatches(const data::Sampler& sampler, const spec::Plan& plan,
                           const spec::Coord& coord, int64_t first_step, int64_t shift)
    : microbatches_(microbatches_of(plan, coord)),
      hashes_(microbatches_.size()),
      split_(whole_step(plan)),
      shift_(shift),
      prefetcher_(sampler,
                  [this](int64_t batch, std::vector<int64_t>& out) {
                    const auto each = static_cast<int64_t>(microbatches_.size());
                    data::batch_positions(split_, batch / each,
                                          microbatches_[static_cast<size_t>(batch % each)], out);
                    for (int64_t& position : out) position += shift_;
                  },
                  {.first_batch = first_step * static_cast<int64_t>(microbatches_.size()),
                   .depth = 2 * static_cast<int>(microbatches_.size())}) {}

void TrainBatches::fill(int index, const engine::HostMicrobatch& out) {
  const double called = obs::steady_seconds();
  const data::Batch& batch = prefetcher_.next();
  waited_seconds_ += obs::steady_seconds() - called;
  copy_batch(batch, out);
  uint64_t& hash = hashes_.at(static_cast<size_t>(index));
  hash = 0;
  for (const int64_t sample : batch.samples) hash += base::hash_of(static_cast<uint64_t>(sample));
}

void check_samples(const engine::StepReport& report, const spec::Plan& plan, int64_t step,
                   int64_t shift) {
  if (!report.same_samples) {
    throw base::Error(
        fmt::format("step {}: ranks along tp consumed different samples; no later result can be "
                    "trusted",
                    step + 1));
  }
  const int64_t batch = whole_step(plan).global_batch;
  const int64_t first = step * batch + shift;
  uint64_t wanted = 0;
  for (int64_t i = 0; i < batch; ++i) {
    wanted += base::hash_of(static_cast<uint64_t>(first + i));
  }
  if (report.sample_hash == wanted) return;
  throw base::Error(fmt::format(
      "step {}: samples {}..{} were not each consumed exactly once: the sum of their hashes is "
      "{:016x} and should be {:016x}; a sample is missing or duplicated",
      step + 1, first, first + batch - 1, report.sample_hash, wanted));
}

SequentialBatches::SequentialBatches(const data::Sampler& sampler, int64_t sequences,
                                     int64_t samples)
    : sampler_(sampler), sequences_(sequences), samples_(samples) {
  TRIREME_CHECK(samples <= sampler.samples(), "{} of {} samples", samples, sampler.samples());
}

void SequentialBatches::fill(int /*index*/, const engine::HostMicrobatch& out) {
  const int64_t left = std::max<int64_t>(0, samples_ - next_);
  std::vector<int64_t> positions;
  for (int64_t i = 0; i < sequences_; ++i) positions.push_back(next_++);
  data::fill_batch(sampler_, positions, batch_);
  if (left < sequences_) {
    std::fill(batch_.labels.begin() + left * sampler_.seq_len(), batch_.labels.end(), -1);
  }
  copy_batch(batch_, out);
}

}  // namespace trireme::train
