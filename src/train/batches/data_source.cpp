// SPDX-License-Identifier: Apache-2.0
#include "train/batches/data_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text/json.h"
#include "data/files/content.h"
#include "data/files/vocabulary.h"
#include "data/inspect.h"
#include "data/mask.h"
#include "data/tokenizer_beside.h"

namespace trireme::train {
namespace {

// Returns the vocabulary that the data was built with, or else that of its tokens.
int64_t vocabulary_of(const data::TokenData& data, const std::string& path) {
  const std::optional<base::Json> manifest = data::manifest_beside(path);
  const base::Json options = manifest ? manifest->value("options", base::Json()) : base::Json();
  if (options.is_object() && options.contains("vocab") && options.at("vocab").is_number_integer()) {
    return options.at("vocab").get<int64_t>();
  }
  return int64_t{data::inspect(data, {}).token_max} + 1;
}

// Throws IoError for a token that the model does not have, with the key that changes that.
void check_tokens(const data::TokenData& data, const DataSourceOptions& o) {
  try {
    data::check_vocabulary(data, o.vocab, {});
  } catch (const base::IoError& error) {
    throw base::IoError(fmt::format("{}; set --model.vocab_size={}, the vocabulary of the data",
                                    error.what(), vocabulary_of(data, o.path)));
  }
}

std::unique_ptr<data::TokenData> open(const DataSourceOptions& o) {
  if (o.path.empty()) {
    throw base::ConfigError(
        "training.dataset_path is empty: name a data set or a text with --data (trireme data build "
        "makes data sets of texts)");
  }
  const data::TokenFormat format = data::token_format_from_name(o.format);
  auto data = data::open_tokens(
      o.path,
      {.format = format, .type = format == data::TokenFormat::nanogpt ? o.dtype : std::string()});
  // Takes well below a second. In larger data every sample is checked when it is read.
  constexpr int64_t max_scanned = 1 << 27;
  if (data->tokens() <= max_scanned) check_tokens(*data, o);
  return data;
}

base::Json content_json(const data::TokenData& data) {
  const data::ContentId id = data::content_id(data);
  return {{"tokens", id.tokens},
          {"token_hash", id.token_hash},
          {"documents", id.documents},
          {"document_hash", id.document_hash}};
}

// Returns the documents that are packed for training; the rest is held out.
int64_t trained_documents(int64_t documents, double held_out_fraction, const std::string& name) {
  if (held_out_fraction == 0) return documents;
  const auto held_out =
      std::max<int64_t>(1, std::llround(static_cast<double>(documents) * held_out_fraction));
  if (held_out < documents) return documents - held_out;
  throw base::ConfigError(fmt::format(
      "{}: {} documents are too few to pack some and hold out others; name a validation set "
      "(validation.dataset_path), or set training.packing = \"none\"",
      name, documents));
}

}  // namespace

DataSource::DataSource(const DataSourceOptions& options)
    : options_(options),
      data_(open(options_)),
      mask_data_(data::open_mask(options_.path, *data_)),
      mask_(mask_data_ ? data::loss_mask_of(*mask_data_) : nullptr) {
  for (const int64_t seq_len : options_.seq_lens) {
    options_.is_packed ? pack(seq_len) : cut(seq_len);
  }
}

void DataSource::cut(int64_t seq_len) {
  data::SamplerOptions options{
      .seed = options_.seed,
      .seq_len = seq_len,
      .split = options_.is_validation ? data::Split::whole : data::Split::train,
      .validation_fraction = options_.held_out_fraction,
      .document_mask = options_.document_mask,
      .vocab = options_.vocab,
      .loss_mask = mask_.get(),
      .shuffle_len = options_.seq_lens.back()};
  samples_[seq_len] = std::make_unique<data::Sampler>(*data_, options);
  if (options_.held_out_fraction == 0) return;
  options.split = data::Split::validation;
  held_out_[seq_len] = std::make_unique<data::Sampler>(*data_, options);
}

void DataSource::pack(int64_t seq_len) {
  const int64_t documents = data_->documents().count();
  const int64_t trained = trained_documents(documents, options_.held_out_fraction, data_->name());
  const data::PackedSamplerOptions options{.seed = options_.seed,
                                           .is_shuffled = !options_.is_validation,
                                           .document_mask = options_.document_mask,
                                           .vocab = options_.vocab,
                                           .loss_mask = mask_.get()};
  packed_ = std::make_unique<data::PackingTable>(
      data::PackingTable::pack(*data_, {.seq_len = seq_len, .documents = trained}));
  samples_[seq_len] = std::make_unique<data::PackedSampler>(*data_, *packed_, options);
  if (trained == documents) return;
  held_out_packed_ = std::make_unique<data::PackingTable>(data::PackingTable::pack(
      *data_, {.seq_len = seq_len, .first_document = trained, .documents = documents - trained}));
  data::PackedSamplerOptions in_order = options;
  in_order.is_shuffled = false;
  held_out_[seq_len] = std::make_unique<data::PackedSampler>(*data_, *held_out_packed_, in_order);
}

std::string DataSource::changed() const {
  std::string text = data_->changed();
  const std::string of_mask = mask_data_ ? mask_data_->changed() : "";
  if (!text.empty() && !of_mask.empty()) text += "; ";
  return text + of_mask;
}

base::Json DataSource::content() const {
  base::Json json = content_json(*data_);
  if (mask_data_) json["loss_mask"] = content_json(*mask_data_);
  return json;
}

}  // namespace trireme::train
