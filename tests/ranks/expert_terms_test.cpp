// SPDX-License-Identifier: Apache-2.0
// The terms that balance experts: neither the ranks nor, where a term is one of single tokens or
// sequences, the cut into micro-batches changes their weight. Terms are large here, so that they
// dominate the routers' gradients. Some labels are masked: their tokens have no terms.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "tests/ranks/ranks_rig.h"

namespace trireme::tests {
namespace {

constexpr int64_t total_sequences = 8, sequence_tokens = 8;
constexpr double term_bound = 1e-6;

// Sequences by their number in the step, for every cut of the step into micro-batches.
class NumberedSequences final : public engine::MicrobatchSource {
 public:
  NumberedSequences(const spec::Plan& plan, const spec::Coord& coord, int64_t vocab)
      : plan_(plan), coord_(coord), vocab_(static_cast<uint64_t>(vocab)) {}

  void fill(int index, const engine::HostMicrobatch& out) override {
    constexpr uint64_t masked_one_in = 4;
    engine::set_equal_sequences(out, plan_.layout.micro_batch, plan_.seq_len);
    const auto first = static_cast<uint64_t>(spec::global_microbatch(plan_, coord_, index) *
                                             plan_.layout.micro_batch * plan_.seq_len);
    for (size_t t = 0; t < out.tokens.size(); ++t) {
      const uint64_t number = 3 * (first + t);
      out.tokens[t] = static_cast<int32_t>(base::rng_below(key_, number, vocab_));
      const bool is_masked = base::rng_below(key_, number + 1, masked_one_in) == 0;
      out.labels[t] =
          is_masked ? -1 : static_cast<int32_t>(base::rng_below(key_, number + 2, vocab_));
    }
  }

 private:
  const spec::Plan& plan_;
  const spec::Coord coord_;
  const uint64_t vocab_;
  const base::RngKey key_ = base::rng_key(11, "sequences");
};

struct TermLosses {
  double aux = 0, z = 0;  // E sum of f P, and the mean of lse^2
};

struct Terms {
  std::map<std::string, std::vector<float>> router_grads;
  std::map<int, TermLosses> losses;  // by layer
};

TermLosses losses_of(const engine::RouterUpdate::LayerStats& layer) {
  const auto value = [&](int64_t i) { return double{layer.stats[static_cast<size_t>(i)]}; };
  const double tokens = value(layer.at.tokens());
  double pairs = 0, sum = 0;
  for (int64_t e = 0; e < layer.at.experts; ++e) {
    pairs += value(layer.at.counts() + e);
    sum += value(layer.at.counts() + e) * value(layer.at.probs() + e);
  }
  return {static_cast<double>(layer.at.experts) * sum / (pairs * tokens),
          value(layer.at.lse2()) / tokens};
}

Terms terms_of(const Layout& layout) {
  std::vector<Terms> all(static_cast<size_t>(ranks_of(layout)));
  run_layout(layout, [&](RankRig& rig) {
    Terms& terms = all[static_cast<size_t>(rig.mesh.world().rank())];
    NumberedSequences source(rig.engine.plan(), rig.mesh.coord(), layout.dims.vocab);
    rig.engine.accumulate(source);
    for (const auto& param : rig.engine.parameters()) {
      if (param.name.find("router") == std::string::npos) continue;
      terms.router_grads[param.name] = rig.engine.read_grads(param.name);
    }
    rig.engine.apply(0);
    for (const auto& layer : rig.engine.router_stats()) {
      terms.losses[layer.layer] = losses_of(layer);
    }
  });
  Terms merged = all.front();
  for (const Terms& terms : all) {
    EXPECT_EQ(terms.router_grads, merged.router_grads) << to_string(layout);
    for (const auto& [layer, losses] : terms.losses) merged.losses[layer] = losses;
  }
  return merged;
}

double relative_distance(const std::vector<float>& a, const std::vector<float>& b) {
  double squares = 0, size = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    squares += std::pow(double{a[i]} - double{b[i]}, 2);
    size += std::pow(double{b[i]}, 2);
  }
  return std::sqrt(squares / size);
}

void expect_terms_of(const Layout& layout, const Terms& wanted) {
  const Terms found = terms_of(layout);
  ASSERT_FALSE(wanted.router_grads.empty());
  for (const auto& [name, grads] : wanted.router_grads) {
    EXPECT_LT(relative_distance(found.router_grads.at(name), grads), term_bound)
        << name << ", " << to_string(layout);
  }
  ASSERT_EQ(found.losses.size(), wanted.losses.size());
  for (const auto& [layer, losses] : wanted.losses) {
    EXPECT_NEAR(found.losses.at(layer).aux / losses.aux, 1, term_bound) << to_string(layout);
    EXPECT_NEAR(found.losses.at(layer).z / losses.z, 1, term_bound) << to_string(layout);
  }
}

// Two blocks with 8 experts.
spec::ModelDims with_terms(spec::ModelDims dims, const spec::BalanceSpec& balance) {
  dims.heads = 4;
  dims.kv_heads = 4;
  dims.head_dim = 4;
  dims.moe->router.experts = 8;
  dims.moe->balance = balance;
  return dims;
}

// The micro-batches of all workers have `sequences` sequences each.
Layout cut_into(const spec::ModelDims& dims, int workers, int sequences) {
  return {.dims = dims,
          .logical_dp = workers,
          .microbatches = static_cast<int>(total_sequences) / (workers * sequences),
          .sequences = sequences,
          .seq_len = sequence_tokens};
}

struct TermRanks {
  int dp, zero, stage, tp, cp, pp, ep, etp;
};
Layout spread(Layout layout, const TermRanks& r) {
  layout.dp = r.dp;
  layout.zero = r.zero;
  layout.stage = r.stage;
  layout.tp = r.tp;
  layout.sequence_parallel = r.tp > 1;
  layout.cp = r.cp;
  layout.pp = r.pp;
  layout.ep = r.ep;
  layout.etp = r.etp;
  return layout;
}
const std::vector<TermRanks> term_ranks = {
    {2, 1, 0, 1, 1, 1, 1, 1}, {2, 1, 0, 1, 1, 1, 2, 1}, {1, 2, 1, 1, 1, 1, 2, 1},
    {1, 1, 0, 2, 1, 1, 1, 1}, {1, 1, 0, 2, 1, 1, 2, 1}, {1, 1, 0, 2, 1, 1, 1, 2},
    {1, 1, 0, 1, 2, 1, 1, 1}, {1, 1, 0, 1, 2, 1, 2, 1}, {1, 1, 0, 2, 2, 1, 4, 1},
    {1, 1, 0, 1, 1, 2, 1, 1}, {2, 1, 0, 1, 1, 2, 2, 1}, {2, 1, 0, 2, 2, 1, 2, 2}};

std::vector<spec::ModelDims> models_with(const spec::BalanceSpec& balance) {
  spec::ModelDims sigmoid = tiny_shared_moe();
  sigmoid.dense_layers = 0;
  return {with_terms(tiny_moe(), balance), with_terms(sigmoid, balance)};
}

TEST(ExpertTerms, ranks_do_not_change_their_weight) {
  for (const spec::AuxScope scope : {spec::AuxScope::sequence, spec::AuxScope::micro_batch}) {
    for (const spec::ModelDims& dims : models_with({.aux = 4, .scope = scope, .z = 2})) {
      const Layout one = cut_into(dims, 2, 2);
      const Terms wanted = terms_of(one);
      for (const TermRanks& ranks : term_ranks) expect_terms_of(spread(one, ranks), wanted);
    }
  }
}

TEST(ExpertTerms, micro_batches_do_not_change_those_of_sequences) {
  for (const spec::ModelDims& dims :
       models_with({.aux = 4, .scope = spec::AuxScope::sequence, .z = 2})) {
    const Terms wanted = terms_of(cut_into(dims, 1, 1));
    for (const int sequences : {2, 4, 8}) expect_terms_of(cut_into(dims, 1, sequences), wanted);
    expect_terms_of(spread(cut_into(dims, 2, 4), {2, 1, 0, 1, 1, 1, 2, 1}), wanted);
    expect_terms_of(spread(cut_into(dims, 4, 2), {2, 1, 0, 1, 1, 1, 1, 1}), wanted);
    expect_terms_of(spread(cut_into(dims, 1, 4), {1, 1, 0, 2, 2, 1, 4, 1}), wanted);
  }
}

// A term of a micro-batch does depend on the cut.
TEST(ExpertTerms, micro_batches_change_those_of_micro_batches) {
  for (const spec::ModelDims& dims :
       models_with({.aux = 4, .scope = spec::AuxScope::micro_batch, .z = 2})) {
    const Terms wanted = terms_of(cut_into(dims, 1, 1)), other = terms_of(cut_into(dims, 1, 8));
    for (const auto& [name, grads] : wanted.router_grads) {
      EXPECT_GT(relative_distance(other.router_grads.at(name), grads), 1e-3) << name;
    }
  }
}

// Tokens without a label have no terms: the gradient is the sum over the others alone.
TEST(ExpertTerms, are_proportional_to_their_factor) {
  std::vector<Terms> terms;
  for (const float factor : {0.0F, 1.0F, 3.0F}) {
    const spec::BalanceSpec balance{
        .aux = 4 * factor, .scope = spec::AuxScope::sequence, .z = 2 * factor};
    terms.push_back(terms_of(
        spread(cut_into(with_terms(tiny_moe(), balance), 2, 2), {1, 1, 0, 2, 2, 1, 2, 1})));
  }
  int compared = 0;
  for (const auto& [name, without] : terms[0].router_grads) {
    std::vector<float> predicted;
    for (size_t i = 0; i < without.size(); ++i) {
      predicted.push_back(without[i] + 3 * (terms[1].router_grads.at(name)[i] - without[i]));
    }
    // The gradients of the last block only: terms change the input gradients of the first.
    if (name.find("blocks.1.") == std::string::npos) continue;
    ++compared;
    EXPECT_LT(relative_distance(terms[2].router_grads.at(name), predicted), term_bound) << name;
  }
  EXPECT_GT(compared, 0);
}

}  // namespace
}  // namespace trireme::tests
