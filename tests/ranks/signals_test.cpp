// SPDX-License-Identifier: Apache-2.0
// Signals of steps on several ranks: the same on all of them and, for every layout, near
// those of one rank; loss statistics against the loss that each data rank evaluates; the norm of
// updates against the weights before and after.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>

#include "tests/ranks/ranks_rig.h"

namespace trireme::tests {
namespace {

using engine::StepSignals;

constexpr int signal_steps = 3;
constexpr int signal_workers = 4;
// Sums in another order; three steps of AdamW or Muon enlarge them.
constexpr double signal_bound = 2e-5;

struct Found {
  std::vector<StepSignals> signals;
  std::vector<double> losses;   // of the first step, by data rank
  std::vector<double> changes;  // of the weights in each step
};

double change_of(engine::Engine& engine, std::map<std::string, std::vector<float>>& weights) {
  double squares = 0;
  for (const auto& param : engine.parameters()) {
    std::vector<float> now = engine.read_weights(param.name);
    std::vector<float>& before = weights[param.name];
    for (size_t i = 0; i < before.size(); ++i) {
      const double change = static_cast<double>(now[i]) - static_cast<double>(before[i]);
      squares += change * change;
    }
    before = std::move(now);
  }
  return std::sqrt(squares);
}

// One micro-batch of a rank as its first.
class Single final : public engine::MicrobatchSource {
 public:
  Single(engine::MicrobatchSource& all, int index) : all_(all), index_(index) {}
  void fill(int /*index*/, const engine::HostMicrobatch& out) override { all_.fill(index_, out); }

 private:
  engine::MicrobatchSource& all_;
  int index_;
};

// Returns the mean loss of this data rank's micro-batches of a step.
double loss_of(RankRig& rig) {
  double loss = 0;
  int64_t tokens = 0;
  for (int i = 0; i < rig.engine.plan().schedule.microbatches; ++i) {
    Single source(rig.source, i);
    const engine::EvalReport report = rig.engine.evaluate(source);
    loss += report.loss_sum;
    tokens += report.tokens;
  }
  return loss / static_cast<double>(tokens);
}

// Expects the same signals on all ranks and returns them.
Found run(const Layout& layout) {
  Found found;
  std::vector<std::vector<StepSignals>> all(static_cast<size_t>(ranks_of(layout)));
  std::vector<std::vector<double>> changes(all.size());
  std::map<int, double> losses;
  std::mutex mutex;
  run_layout(layout, [&](RankRig& rig) {
    const auto rank = static_cast<size_t>(rig.mesh.world().rank());
    const double loss = loss_of(rig);
    {
      const std::scoped_lock lock(mutex);
      losses[spec::data_rank(rig.engine.plan().mesh, rig.mesh.coord())] = loss;
    }
    std::map<std::string, std::vector<float>> weights;
    change_of(rig.engine, weights);
    for (int i = 0; i < signal_steps; ++i) {
      rig.engine.step(rig.source, 1e-3);
      rig.next_step();
      changes[rank].push_back(change_of(rig.engine, weights));
    }
    all[rank] = rig.engine.drain_signals();
  });
  for (const auto& [rank, loss] : losses) found.losses.push_back(loss);
  std::ranges::sort(found.losses);
  found.signals = all.front();
  found.changes = changes.front();
  for (const std::vector<StepSignals>& other : all) {
    EXPECT_EQ(other.size(), static_cast<size_t>(signal_steps));
    for (size_t i = 0; i < std::min(other.size(), found.signals.size()); ++i) {
      EXPECT_EQ(other[i].layer_grad_norms, found.signals[i].layer_grad_norms);
      EXPECT_EQ(other[i].loss_median, found.signals[i].loss_median);
      EXPECT_EQ(other[i].update_norm, found.signals[i].update_norm);
      EXPECT_EQ(other[i].masked, found.signals[i].masked);
    }
  }
  return found;
}

void expect_near(double found, double expected, const char* what) {
  EXPECT_NEAR(found, expected, signal_bound * std::abs(expected)) << what;
}

// Statistics of data ranks and updates, within one run.
void expect_own_numbers(const Found& found) {
  const StepSignals& first = found.signals.front();
  const size_t count = found.losses.size();
  expect_near(first.loss_min, found.losses.front(), "lowest loss");
  expect_near(first.loss_max, found.losses.back(), "highest loss");
  expect_near(first.loss_median, (found.losses[(count - 1) / 2] + found.losses[count / 2]) / 2,
              "median loss");
  EXPECT_EQ(first.update_norm, 0);
  for (size_t i = 0; i < found.signals.size(); ++i) {
    const StepSignals& step = found.signals[i];
    EXPECT_EQ(step.index, static_cast<int64_t>(i));
    EXPECT_LE(step.loss_min, step.loss_median);
    EXPECT_LE(step.loss_median, step.loss_max);
    if (i > 0) expect_near(step.update_norm, found.changes[i - 1], "update");
    double squares = 0;
    for (const float norm : step.layer_grad_norms) squares += static_cast<double>(norm * norm);
    expect_near(std::sqrt(squares), step.grad_norm, "norm of all layers");
  }
}

void expect_near_one_rank(const Layout& layout) {
  SCOPED_TRACE(to_string(layout));
  Layout alone = layout;
  alone.dp = alone.zero = alone.tp = alone.cp = alone.pp = alone.ep = alone.etp = 1;
  alone.stage = 0;
  alone.sequence_parallel = false;
  alone.cut.clear();
  static std::map<std::string, Found> known;  // by what one rank trains
  const std::string key = bits_key(alone);
  if (!known.contains(key)) known[key] = run(alone);
  const Found& expected = known[key];
  const Found found = run(layout);
  ASSERT_EQ(found.signals.size(), expected.signals.size());
  expect_own_numbers(found);
  for (size_t i = 0; i < found.signals.size(); ++i) {
    const StepSignals &a = found.signals[i], &b = expected.signals[i];
    expect_near(a.mean_loss, b.mean_loss, "loss");
    expect_near(a.grad_norm, b.grad_norm, "norm");
    expect_near(a.update_norm, b.update_norm, "update");
    EXPECT_EQ(a.tokens, b.tokens);
    EXPECT_EQ(a.masked, b.masked);
    EXPECT_EQ(a.padding, b.padding);
    EXPECT_EQ(a.tokens + a.masked, layout.logical_dp * layout.sequences * layout.seq_len);
    ASSERT_EQ(a.layer_grad_norms.size(), b.layer_grad_norms.size());
    for (size_t layer = 0; layer < a.layer_grad_norms.size(); ++layer) {
      SCOPED_TRACE(layer);
      expect_near(a.layer_grad_norms[layer], b.layer_grad_norms[layer], "norm of a layer");
    }
  }
}

spec::ModelDims signal_model(spec::ModelDims dims) {
  dims.heads = 4;
  dims.kv_heads = dims.family == spec::Family::gpt2 ? 0 : 2;
  dims.max_seq = 16;
  return dims;
}

Layout signal_layout(const spec::ModelDims& dims) {
  Layout layout{.dims = dims, .logical_dp = signal_workers, .sequences = 2, .seq_len = 16};
  return layout;
}

// Every axis alone and pairs of them.
std::vector<Layout> signal_layouts(const spec::ModelDims& dims) {
  const Layout one = signal_layout(dims);
  std::vector<Layout> all;
  const auto add = [&](auto&& change) { change(all.emplace_back(one)); };
  add([](Layout& l) { l.dp = 2; });
  add([](Layout& l) { l.dp = 4; });
  add([](Layout& l) { l.zero = 2, l.stage = 1; });
  add([](Layout& l) { l.zero = 4, l.stage = 3; });
  add([](Layout& l) { l.dp = 2, l.zero = 2, l.stage = 2; });
  add([](Layout& l) { l.tp = 2; });
  add([](Layout& l) { l.tp = 2, l.sequence_parallel = true, l.dp = 2; });
  add([](Layout& l) { l.tp = 2, l.zero = 2, l.stage = 1; });
  add([](Layout& l) { l.pp = 2; });
  add([](Layout& l) { l.pp = 2, l.dp = 2, l.tp = 2; });
  return all;
}

TEST(SignalsRanksTest, adamw) {
  for (const spec::ModelDims& dims : {signal_model(tiny_llama()), signal_model(tiny_qwen3())}) {
    for (const Layout& layout : signal_layouts(dims)) expect_near_one_rank(layout);
  }
  Layout bf16 = signal_layout(signal_model(tiny_llama()));
  bf16.recipe = "bf16";
  bf16.master = base::DType::u16;
  bf16.dp = 2;
  bf16.streams = device::StreamMode::worker_threads;
  expect_near_one_rank(bf16);
}

TEST(SignalsRanksTest, muon) {
  for (Layout layout : signal_layouts(signal_model(tiny_llama()))) {
    layout.optimizer = spec::OptimizerKind::muon;
    expect_near_one_rank(layout);
  }
}

TEST(SignalsRanksTest, slices_of_a_sequence_are_one_data_rank) {
  for (const spec::ContextKind kind : {spec::ContextKind::gather, spec::ContextKind::ring}) {
    Layout layout = signal_layout(signal_model(tiny_llama()));
    layout.cp = 2;
    layout.context_kind = kind;
    expect_near_one_rank(layout);
    layout.dp = 2;
    expect_near_one_rank(layout);
  }
}

TEST(SignalsRanksTest, experts) {
  spec::ModelDims dims = signal_model(tiny_moe());
  dims.moe->balance = {};  // its terms depend on which tokens a rank has
  for (const int tp : {1, 2}) {
    Layout layout = signal_layout(dims);
    layout.zero = 2;
    layout.stage = 1;
    layout.ep = 2;
    layout.tp = tp;
    layout.sequence_parallel = tp > 1;
    expect_near_one_rank(layout);
  }
}

}  // namespace
}  // namespace trireme::tests
