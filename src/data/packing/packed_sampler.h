// SPDX-License-Identifier: Apache-2.0
// Samples of packed documents: a pure function of (seed, data set, table, position).
#pragma once

#include <cstdint>
#include <vector>

#include "data/files/token_data.h"
#include "data/packing/packing_table.h"
#include "data/samples/loss_mask.h"
#include "data/samples/sample_provider.h"

namespace trireme::data {

struct PackedSamplerOptions {
  uint64_t seed = 0;
  bool is_shuffled = true;  // in every epoch; otherwise in the order of the table
  // Documents do not attend to each other: positions restart at a border, and borders are reported.
  bool document_mask = true;
  int64_t vocab = 0;      // every token must be below this; 0: not checked
  int32_t pad_token = 0;  // fills the end of a sequence; its label is base::padding_label
  // Labels that it excludes become -1; null: none. Covers the data set and outlives the sampler.
  const LossMask* loss_mask = nullptr;
};

// A sample is one sequence of the table. The label of every token is the next token of the same
// document. Padding is one more sequence behind the last border. Any thread may call.
class PackedSampler final : public SampleProvider {
 public:
  // Both references must outlive the sampler. Throws ConfigError, with numbers, about the options.
  PackedSampler(const TokenData&, const PackingTable&, const PackedSamplerOptions&);

  int64_t samples() const override { return table_.sequences(); }
  int64_t seq_len() const override { return table_.seq_len(); }
  // Returns the sequence of the table at `position` = epoch * samples() + index.
  int64_t sequence_at(int64_t position) const;

 private:
  void fill_sample(int64_t position, const SampleOut& out,
                   std::vector<int32_t>& borders) const override;
  void fill_piece(const PackingTable::Piece&, const SampleOut& out) const;

  const TokenData& data_;
  const PackingTable& table_;
  PackedSamplerOptions options_;
  uint64_t order_key_ = 0;
};

}  // namespace trireme::data
