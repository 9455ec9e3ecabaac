// SPDX-License-Identifier: Apache-2.0
// A model learns: on an order-2 Markov source its loss falls to the exact entropy rate, and not
// below.
#include <gtest/gtest.h>

#include <cmath>

#include "data/yardsticks/markov.h"
#include "optim/lr_schedule.h"
#include "tests/engine/rig.h"

namespace trireme::tests {
namespace {

// Every sequence is a separate stream; streams are numbered so that none is used twice.
class MarkovBatches final : public engine::MicrobatchSource {
 public:
  MarkovBatches(const data::MarkovSource& source, int64_t sequences, int64_t seq_len,
                uint64_t first_stream)
      : source_(source), sequences_(sequences), seq_len_(seq_len), stream_(first_stream) {}

  void fill(int /*index*/, const engine::HostMicrobatch& out) override {
    engine::set_equal_sequences(out, sequences_, seq_len_);
    std::vector<int32_t> tokens(static_cast<size_t>(seq_len_) + 1);
    for (int64_t s = 0; s < sequences_; ++s) {
      source_.generate(stream_++, tokens);
      for (int64_t t = 0; t < seq_len_; ++t) {
        const auto at = static_cast<size_t>(s * seq_len_ + t);
        out.tokens[at] = tokens[static_cast<size_t>(t)];
        // The first label has only one token of context: its entropy is higher than the rate.
        out.labels[at] = t == 0 ? -1 : tokens[static_cast<size_t>(t) + 1];
      }
    }
  }

 private:
  const data::MarkovSource& source_;
  int64_t sequences_, seq_len_;
  uint64_t stream_;
};

TEST(LearningTest, loss_reaches_the_entropy_rate_of_an_order_2_source) {
  const data::MarkovSource source(11, 12, 2, 5.0);
  const double entropy = source.entropy_rate();
  RigOptions o{.dims = {.name = "markov",
                        .family = spec::Family::llama,
                        .layers = 2,
                        .hidden = 64,
                        .heads = 4,
                        .ffn = 128,
                        .vocab = 12,
                        .max_seq = 64},
               .sequences = 16,
               .seq_len = 64,
               .threads = 2,
               .head_chunk_rows = 1024};
  o.engine.adamw.weight_decay = 0.01F;
  Rig rig(o);
  MarkovBatches train(source, o.sequences, o.seq_len, 1 << 20);

  const int steps = 700;
  const optim::LrSchedule lr{
      .decay = optim::Decay::cosine, .peak = 6e-3, .warmup_steps = 30, .total_steps = steps};
  double first = 0;
  for (int step = 0; step < steps; ++step) {
    rig.engine.step(train, optim::learning_rate(lr, step));
    if (step == 0) first = rig.engine.report().mean_loss;
  }
  EXPECT_EQ(rig.engine.report().skipped, 0);

  MarkovBatches held_out(source, o.sequences, o.seq_len, 0);
  double loss = 0;
  int64_t tokens = 0;
  for (int i = 0; i < 40; ++i) {
    const engine::EvalReport report = rig.engine.evaluate(held_out);
    loss += report.loss_sum;
    tokens += report.tokens;
  }
  const double mean = loss / static_cast<double>(tokens);
  // A token's loss deviates by about 1 nat; four standard errors of the mean.
  const double sampling = 4 * 1.0 / std::sqrt(static_cast<double>(tokens));
  RecordProperty("entropy", std::to_string(entropy));
  RecordProperty("loss", std::to_string(mean));
  std::printf("entropy rate %.4f, first loss %.4f, held-out loss %.4f (%+.2f %%)\n", entropy, first,
              mean, 100 * (mean / entropy - 1));
  EXPECT_GE(first, 1.3 * entropy);
  EXPECT_LE(mean, 1.02 * entropy);
  EXPECT_GE(mean, entropy - sampling);
}

}  // namespace
}  // namespace trireme::tests
