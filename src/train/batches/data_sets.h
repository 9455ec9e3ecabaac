// SPDX-License-Identifier: Apache-2.0
// DataSets: the training and validation data of a run, and the order in which it reads them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/text/json_fwd.h"
#include "config/config.h"
#include "data/mixture/mixed_sampler.h"
#include "data/mixture/phases.h"
#include "train/batches/data_source.h"
#include "train/batches/leg.h"

namespace trireme::train {

// Opened and checked against the model. Any thread may call.
class DataSets {
 public:
  // Throws IoError or ConfigError that names file, data set or phase, and reason.
  DataSets(const config::Config&, int64_t vocab);

  const data::Phases& phases() const { return *phases_; }
  const std::vector<Leg>& legs() const { return legs_; }
  // Returns the leg of a step, counted from 1; of a step after the last: the last leg.
  const Leg& leg_at(int64_t step) const { return train::leg_at(legs_, step); }
  // Returns the samples, and tokens, of the steps up to `step`.
  int64_t samples_until(int64_t step) const { return train::samples_until(legs_, step); }
  int64_t tokens_until(int64_t step) const { return train::tokens_until(legs_, step); }
  // Is the order of samples that of one data set, with one batch size? Then positions may be
  // offset, and continue without end.
  bool is_one_stream() const { return sources_.size() == 1 && phases_->table().size() == 1; }

  // Returns the samples of the run in sequences of `seq_len`. REQUIRES: a leg has this length, also
  // in the functions below.
  const data::SampleProvider& train(int64_t seq_len) const { return *train_.at(seq_len); }
  // Returns the samples of one epoch of all data sets.
  int64_t epoch_samples(int64_t seq_len) const;
  const std::vector<DataSource>& sources() const { return sources_; }
  // Returns the index of the data set that gives a sample of the run.
  int source_of(int64_t sample) const {
    return is_one_stream() ? 0 : phases_->origin(sample).source;
  }

  // Validation sets; none: the run does not validate. Held-out parts have the names of their data
  // sets.
  size_t validations() const { return validation_names_.size(); }
  const std::string& validation_name(size_t set) const { return validation_names_.at(set); }
  const std::vector<DataSource>& validation_sources() const { return validation_sources_; }
  const data::SampleProvider& validation(size_t set, int64_t seq_len) const;

  // Lines that describe the data at the start of an attempt: its files, and, unless it is one
  // stream, the phases from `first_step` on with the share and the epochs of every data set.
  std::vector<std::string> describe(int64_t first_step) const;
  std::vector<std::string> describe_mixture(int64_t first_step) const;

  // The fingerprint of the run's tokenizer becomes part of the identity.
  void set_tokenizer(const std::string& fingerprint) { tokenizer_ = fingerprint; }

  // Returns a message about files of the data that differ from those that were opened; empty: none.
  // One system call per file: cheap enough for every step that logs.
  std::string changed() const;

  // Returns sizes and hashes of all data sets. Reads the data (content_id()).
  base::Json contents() const;
  // Returns everything that decides which tokens a run sees in which order up to `steps`: content
  // of all data sets, split, order, masks, packing, and phases that begin until then. A resumed run
  // compares it with that of its checkpoint, and every rank with that of the first rank.
  base::Json identity(const base::Json& contents, int64_t steps) const;

 private:
  void open_sources(const config::Config&, int64_t vocab);
  void open_validation(const config::Config&, int64_t vocab);
  void make_phases(const config::Config&);
  void make_legs(const config::Config&);

  const double held_out_fraction_;
  const bool document_mask_;
  std::vector<DataSource> sources_;
  std::vector<DataSource> validation_sources_;  // empty: parts of sources_ are held out
  std::vector<std::string> validation_names_;
  std::unique_ptr<data::Phases> phases_;
  std::map<int64_t, std::unique_ptr<data::MixedSampler>> mixed_;  // by seq_len
  std::map<int64_t, const data::SampleProvider*> train_;          // by seq_len
  std::vector<Leg> legs_;
  std::string tokenizer_;  // its fingerprint; empty: none is known
};

}  // namespace trireme::train
