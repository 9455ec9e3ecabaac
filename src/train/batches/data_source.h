// SPDX-License-Identifier: Apache-2.0
// DataSource: one data set of a run with its samples: cut from the stream or packed, with loss
// mask, for every sequence length of the run.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/text/json_fwd.h"
#include "data/files/token_data.h"
#include "data/packing/packed_sampler.h"
#include "data/packing/packing_table.h"
#include "data/samples/loss_mask.h"
#include "data/samples/sampler.h"

namespace trireme::train {

struct DataSourceOptions {
  std::string name, path, format = "auto", dtype = "u16";
  std::vector<int64_t> seq_lens;  // ascending; every one divides the last
  uint64_t seed = 0;
  double held_out_fraction = 0;  // 0: nothing is held out
  bool is_validation = false;    // all samples, in order
  bool is_packed = false;
  bool document_mask = false;
  int64_t vocab = 0;
};

class DataSource {
 public:
  // Throws IoError or ConfigError that names file and reason.
  explicit DataSource(const DataSourceOptions&);

  const std::string& name() const { return options_.name; }
  const std::string& path() const { return options_.path; }
  const data::TokenData& data() const { return *data_; }
  bool has_loss_mask() const { return mask_ != nullptr; }

  // REQUIRES: one of the options' seq_lens. The second one: something is held out.
  const data::SampleProvider& samples(int64_t seq_len) const { return *samples_.at(seq_len); }
  const data::SampleProvider& held_out(int64_t seq_len) const { return *held_out_.at(seq_len); }
  // Statistics of the packing; null: documents are not packed.
  const data::PackingTable* packing() const { return packed_.get(); }

  std::string changed() const;
  // Returns hash and size of tokens, document borders and loss mask. Reads them all.
  base::Json content() const;

 private:
  void cut(int64_t seq_len);
  void pack(int64_t seq_len);

  DataSourceOptions options_;
  std::unique_ptr<data::TokenData> data_, mask_data_;
  std::unique_ptr<data::LossMask> mask_;
  std::unique_ptr<data::PackingTable> packed_, held_out_packed_;
  std::map<int64_t, std::unique_ptr<data::SampleProvider>> samples_, held_out_;  // by seq_len
};

}  // namespace trireme::train
