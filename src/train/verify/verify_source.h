// SPDX-License-Identifier: Apache-2.0
// Batches of verify(): random samples, of which every rank takes its share, and a record of the
// samples that reached the engine.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "engine/step/input.h"
#include "spec/parallel/data_parallel.h"
#include "spec/plan.h"

namespace trireme::train {

// The share of one rank in steps of random samples. A sample is a function of its number alone:
// (step, micro-batch of the whole step, sequence). Some labels are masked; with document_mask every
// sequence is cut once.
class VerifySource final : public engine::MicrobatchSource {
 public:
  // `step` is read at every call. Both must outlive the source.
  VerifySource(const spec::Plan& plan, const spec::Coord& coord, int64_t vocab,
               const int64_t& step);
  void fill(int index, const engine::HostMicrobatch& out) override;
  uint64_t sample_hash(int index) const override;

 private:
  uint64_t first_sample(int index) const;  // the number of its first sample

  const spec::Plan& plan_;
  const spec::Coord coord_;
  const uint64_t vocab_;
  const int64_t& step_;
  const base::RngKey key_;
};

// Forwards another source and records a hash of every sequence.
class SampleRecorder final : public engine::MicrobatchSource {
 public:
  SampleRecorder(std::unique_ptr<engine::MicrobatchSource> inner, int64_t sequences)
      : inner_(std::move(inner)), sequences_(sequences) {}
  void fill(int index, const engine::HostMicrobatch& out) override;
  uint64_t sample_hash(int index) const override { return inner_->sample_hash(index); }

  // SHA-256 of tokens and labels of every sequence since the last call, in order.
  std::vector<std::string> take() { return std::exchange(seen_, {}); }

 private:
  std::unique_ptr<engine::MicrobatchSource> inner_;
  const int64_t sequences_;
  std::vector<std::string> seen_;
};

}  // namespace trireme::train
