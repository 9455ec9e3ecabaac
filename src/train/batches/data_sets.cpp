// SPDX-License-Identifier: Apache-2.0
#include "train/batches/data_sets.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/check.h"
#include "base/text/json.h"
#include "config/lists/phases.h"
#include "obs/terminal/number_text.h"

namespace trireme::train {
namespace {

std::vector<int64_t> seq_lens_of(const config::Config& c) {
  std::set<int64_t> lengths;
  for (const config::PhaseSettings& phase : config::phases_of(c)) lengths.insert(phase.seq_len);
  return {lengths.begin(), lengths.end()};
}

bool holds_out(const config::Config& c) {
  return c.validation.enable && config::validation_list(c).empty();
}

DataSourceOptions source_options(const config::Config& c, int64_t vocab) {
  return {.seq_lens = seq_lens_of(c),
          .seed = static_cast<uint64_t>(c.debug.seed),
          .is_packed = c.training.packing == "best_fit",
          .document_mask = c.training.document_mask,
          .vocab = vocab};
}

void add_text(std::string& all, const std::string& more) {
  if (!all.empty() && !more.empty()) all += "; ";
  all += more;
}

}  // namespace

DataSets::DataSets(const config::Config& c, int64_t vocab)
    : held_out_fraction_(holds_out(c) ? c.validation.split : 0),
      document_mask_(c.training.document_mask) {
  open_sources(c, vocab);
  if (c.validation.enable) open_validation(c, vocab);
  make_phases(c);
  make_legs(c);
}

void DataSets::open_sources(const config::Config& c, int64_t vocab) {
  DataSourceOptions options = source_options(c, vocab);
  options.held_out_fraction = held_out_fraction_;
  for (const config::Dataset& set : config::dataset_list(c)) {
    options.name = set.name;
    options.path = set.path;
    options.format = set.format;
    options.dtype = set.dtype;
    sources_.emplace_back(options);
  }
}

void DataSets::open_validation(const config::Config& c, int64_t vocab) {
  if (holds_out(c)) {
    for (const DataSource& source : sources_) validation_names_.push_back(source.name());
    return;
  }
  DataSourceOptions options = source_options(c, vocab);
  options.is_validation = true;
  for (const config::ValidationDataset& set : config::validation_list(c)) {
    options.name = set.name;
    options.path = set.path;
    options.format = set.format;
    options.dtype = set.dtype;
    validation_sources_.emplace_back(options);
    validation_names_.push_back(set.name);
  }
}

void DataSets::make_phases(const config::Config& c) {
  const std::vector<int64_t> lengths = seq_lens_of(c);
  const std::vector<config::Dataset> sets = config::dataset_list(c);
  data::RunPhases run{.steps = c.training.steps, .seed = static_cast<uint64_t>(c.debug.seed)};
  for (size_t i = 0; i < sets.size(); ++i) {
    // The splits of all lengths are the same, so the tokens of an epoch are, too.
    const int64_t length = lengths.back();
    run.sources.push_back({.name = sets[i].name.empty() ? "data" : sets[i].name,
                           .epoch_tokens = sources_[i].samples(length).samples() * length,
                           .max_epochs = sets[i].max_epochs,
                           .max_tokens = sets[i].max_tokens});
  }
  for (const config::PhaseSettings& phase : config::phases_of(c)) {
    const bool is_first = run.phases.empty();
    run.phases.push_back({.name = phase.name,
                          .from_step = is_first || phase.from_step < 0 ? -1 : phase.from_step - 1,
                          .from_tokens = is_first ? -1 : phase.from_tokens,
                          .weights = phase.weights,
                          .seq_len = phase.seq_len,
                          .global_batch = phase.global_batch_size,
                          .learning_rate = phase.lr,
                          .learning_rate_factor = phase.lr_factor});
  }
  phases_ = std::make_unique<data::Phases>(std::move(run));
  for (const int64_t length : lengths) {
    if (is_one_stream()) {
      train_[length] = &sources_.front().samples(length);
      continue;
    }
    std::vector<const data::SampleProvider*> samples;
    for (const DataSource& source : sources_) samples.push_back(&source.samples(length));
    mixed_[length] = std::make_unique<data::MixedSampler>(*phases_, std::move(samples));
    train_[length] = mixed_[length].get();
  }
}

void DataSets::make_legs(const config::Config& c) {
  const std::vector<config::PhaseSettings> settings = config::phases_of(c);
  const std::vector<data::Phase>& table = phases_->table();
  for (size_t i = 0; i < table.size(); ++i) {
    if (table[i].steps == 0) break;  // the run ends before it
    const int64_t batch = settings[i].global_batch_size;
    Leg leg{.name = settings[i].name,
            .first_step = table[i].first_step + 1,
            .last_step = table[i].first_step + table[i].steps,
            .seq_len = settings[i].seq_len,
            .global_batch_size = batch,
            .local_batch_size = settings[i].local_batch_size,
            .shift = table[i].first_sample - table[i].first_step * batch};
    const bool continues = !legs_.empty() && legs_.back().seq_len == leg.seq_len &&
                           legs_.back().global_batch_size == batch &&
                           legs_.back().local_batch_size == leg.local_batch_size;
    if (continues) {
      TRIREME_CHECK(legs_.back().shift == leg.shift, "shifts {} and {}", legs_.back().shift,
                    leg.shift);
      legs_.back().last_step = leg.last_step;
    } else {
      legs_.push_back(std::move(leg));
    }
  }
}

int64_t DataSets::epoch_samples(int64_t seq_len) const {
  int64_t samples = 0;
  for (const DataSource& source : sources_) samples += source.samples(seq_len).samples();
  return samples;
}

const data::SampleProvider& DataSets::validation(size_t set, int64_t seq_len) const {
  return validation_sources_.empty() ? sources_.at(set).held_out(seq_len)
                                     : validation_sources_.at(set).samples(seq_len);
}

std::vector<std::string> DataSets::describe(int64_t first_step) const {
  const Leg& leg = leg_at(first_step);
  std::vector<std::string> lines;
  for (size_t i = 0; i < sources_.size(); ++i) {
    const DataSource& source = sources_[i];
    std::string line =
        fmt::format("data      {}; {} training samples of {} tokens", source.data().description(),
                    source.samples(leg.seq_len).samples(), leg.seq_len);
    if (sources_.size() > 1) line = fmt::format("{} ({})", line, source.name());
    if (source.has_loss_mask()) line += ", with a loss mask";
    lines.push_back(line);
    if (source.packing() != nullptr) {
      lines.push_back("packing   " + source.packing()->stats().description(leg.seq_len));
    }
  }
  return lines;
}

std::vector<std::string> DataSets::describe_mixture(int64_t first_step) const {
  std::vector<std::string> lines;
  if (is_one_stream()) return lines;
  for (const data::Phase& phase : phases_->table()) {
    if (phase.steps == 0) {
      lines.push_back(fmt::format("phase     {}: the run ends before it", phase.options.name));
      continue;
    }
    const int64_t last = phase.first_step + phase.steps;
    if (last < first_step) continue;
    const auto index = static_cast<int>(&phase - phases_->table().data());
    const std::vector<int64_t> counts = phases_->mixture(index).counts(phase.samples);
    std::string shares;
    for (size_t i = 0; i < sources_.size(); ++i) {
      if (counts[i] == 0) continue;
      const double epochs =
          static_cast<double>(counts[i]) /
          static_cast<double>(sources_[i].samples(phase.options.seq_len).samples());
      shares +=
          fmt::format("{}{} {:.4g} % ({} samples, {:.3g} epochs)", shares.empty() ? "" : ", ",
                      sources_[i].name(),
                      100.0 * static_cast<double>(counts[i]) / static_cast<double>(phase.samples),
                      obs::grouped(counts[i]), epochs);
    }
    lines.push_back(fmt::format("phase     {}, steps {} to {}, {} x {} tokens: {}",
                                phase.options.name, phase.first_step + 1, last,
                                phase.options.global_batch, phase.options.seq_len, shares));
  }
  return lines;
}

std::string DataSets::changed() const {
  std::string all;
  for (const auto* sources : {&sources_, &validation_sources_}) {
    for (const DataSource& source : *sources) add_text(all, source.changed());
  }
  return all;
}

base::Json DataSets::contents() const {
  base::Json training = base::Json::array(), validation = training;
  for (const DataSource& source : sources_) training.push_back(source.content());
  for (const DataSource& source : validation_sources_) validation.push_back(source.content());
  return {{"training", training}, {"validation", validation}};
}

base::Json DataSets::identity(const base::Json& contents, int64_t steps) const {
  // The longest one of all phases, also of those that begin after the run's last step.
  const int64_t length = train_.rbegin()->first;
  // One value for one data set, as before there were several; otherwise a list.
  const auto one_or_all = [](const base::Json& list) {
    return list.size() == 1 ? list.front() : list;
  };
  base::Json training_samples = base::Json::array(), validation_samples = training_samples;
  for (const DataSource& source : sources_) {
    training_samples.push_back(source.samples(length).samples());
  }
  for (size_t i = 0; i < validations(); ++i) {
    validation_samples.push_back(validation(i, length).samples());
  }
  base::Json json = {{"training", one_or_all(contents.at("training"))},
                     {"training_samples", one_or_all(training_samples)},
                     {"held_out_fraction", held_out_fraction_},
                     {"document_mask", document_mask_},
                     {"seed", phases_->run().seed}};
  if (is_one_stream()) {
    json["seq_len"] = length;
  } else {
    json["phases"] = phases_->identity(steps);
  }
  json["validation"] =
      contents.at("validation").empty() ? base::Json() : one_or_all(contents.at("validation"));
  json["validation_samples"] =
      validation_samples.empty() ? base::Json(0) : one_or_all(validation_samples);
  if (sources_.front().packing() != nullptr) json["packing"] = "best_fit";
  if (!tokenizer_.empty()) json["tokenizer"] = tokenizer_;
  return json;
}

}  // namespace trireme::train
