// SPDX-License-Identifier: Apache-2.0
// Parity with PyTorch: loss, every gradient and the weights after ten clipped AdamW steps of five
// tiny models differ from fp64 goldens by no more than rounding to fp32 explains (golden_run.h).
// Planted mistakes show that the comparison detects errors.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <numeric>

#include "tests/golden/golden_run.h"

extern "C" char* openblas_get_corename(void);

namespace trireme::tests {
namespace {

const auto golden_models = testing::Values("gpt2", "llama_tied", "llama_untied", "qwen2", "qwen3");

std::string lines_of(const std::vector<std::string>& problems) {
  std::string text;
  for (const std::string& problem : problems) text += problem + "\n";
  return text;
}

bool reports(const Comparison& c, const std::string& beginning) {
  return std::any_of(c.problems.begin(), c.problems.end(),
                     [&](const std::string& p) { return p.starts_with(beginning); });
}

class ParityTest : public testing::TestWithParam<const char*> {
 protected:
  const Golden golden = read_golden(GetParam());
};

TEST_P(ParityTest, differs_from_fp64_by_roundings_only) {
  const Comparison c = compare(golden, run_golden(golden));
  EXPECT_TRUE(c.problems.empty()) << lines_of(c.problems);
  const auto theirs = [this](const char* key) { return golden.pytorch.at(key).get<double>(); };
  // blas_cores_test.cpp reads the first line.
  std::printf("OpenBLAS kernels: %s\n", openblas_get_corename());
  std::printf(
      "%s, in spreads (PyTorch): gradients rms %.2f (%.2f), largest %.2f (%.2f); weights "
      "%.2f (%.2f), %.2f (%.2f); losses largest %.2f (%.2f)\n",
      golden.name.c_str(), c.grad_rms, theirs("grad_rms"), c.grad_largest, theirs("grad_largest"),
      c.final_rms, theirs("final_rms"), c.final_largest, theirs("final_largest"), c.loss_largest,
      theirs("loss_largest"));
}

INSTANTIATE_TEST_SUITE_P(Goldens, ParityTest, golden_models,
                         [](const auto& model) { return std::string(model.param); });

// Changes to right results: the golden values themselves, rounded to fp32.
class PlantedParityTest : public ParityTest {
 protected:
  PlantedParityTest() {
    for (const auto& [name, values] : golden.grads) {
      for (const double value : values) {
        right.grads[name].push_back(static_cast<double>(static_cast<float>(value)));
      }
    }
    for (const auto& [name, values] : golden.finals) {
      right.finals[name].assign(values.begin(), values.end());
    }
    for (const auto& record : golden.training.at("golden")) {
      right.losses.push_back(record.at("loss_mean"));
      right.tokens.push_back(record.at("valid_tokens"));
    }
  }

  GoldenRun right;
};

// Returns the index of the element of median size.
size_t median_element(const std::vector<double>& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto middle = order.begin() + static_cast<std::ptrdiff_t>(order.size() / 2);
  std::nth_element(order.begin(), middle, order.end(),
                   [&](size_t a, size_t b) { return std::abs(values[a]) < std::abs(values[b]); });
  return *middle;
}

TEST_P(PlantedParityTest, nothing_is_reported_of_the_golden_values) {
  EXPECT_TRUE(compare(golden, right).problems.empty()) << lines_of(compare(golden, right).problems);
}

// In every parameter, the gradient of median size off by a thousandth.
TEST_P(PlantedParityTest, one_gradient_off_by_a_thousandth_is_reported) {
  for (const auto& [name, values] : golden.grads) {
    // Two thirds of the rows of the token embedding have no gradient where the head is untied, and
    // a key bias has none in theory: take the values that are more than noise.
    std::vector<double> sized = values;
    for (size_t i = 0; i < sized.size(); ++i) {
      if (std::abs(values[i]) <= 100 * static_cast<double>(golden.grads_spread.at(name)[i])) {
        sized[i] = 0;
      }
    }
    const auto zeros = std::count(sized.begin(), sized.end(), 0.0);
    ASSERT_LT(zeros, static_cast<std::ptrdiff_t>(sized.size())) << name;
    std::vector<double> nonzero;
    std::copy_if(sized.begin(), sized.end(), std::back_inserter(nonzero),
                 [](double value) { return value != 0; });
    const double median = nonzero[median_element(nonzero)];
    const auto at = std::find(values.begin(), values.end(), median) - values.begin();
    GoldenRun wrong = right;
    wrong.grads.at(name)[static_cast<size_t>(at)] *= 1 + 1e-3;
    EXPECT_TRUE(reports(compare(golden, wrong), "gradient " + name + "[" + std::to_string(at)))
        << name << "[" << at << "]";
  }
}

TEST_P(PlantedParityTest, one_weight_that_did_not_decay_is_reported) {
  const double lr = golden.training.at("lr"), decay = golden.training.at("weight_decay");
  GoldenRun wrong = right;
  std::vector<float>& weights = wrong.finals.at("blocks.1.down.weight");
  const size_t at = median_element(golden.finals.at("blocks.1.down.weight"));
  weights[at] += weights[at] * static_cast<float>(lr * decay);
  EXPECT_TRUE(reports(compare(golden, wrong), "trained weight blocks.1.down.weight"));
}

TEST_P(PlantedParityTest, swapped_heads_are_reported) {
  GoldenRun wrong = right;
  std::vector<double>& grads = wrong.grads.at("blocks.0.qkv.weight");  // [(H + 2 G) K, D]
  const auto head = static_cast<std::ptrdiff_t>(golden.dims.head_dim * golden.dims.hidden);
  std::swap_ranges(grads.begin(), grads.begin() + head, grads.begin() + head);
  EXPECT_TRUE(reports(compare(golden, wrong), "gradient blocks.0.qkv.weight"));
}

// Ten bits of mantissa, as TF32 has, in the gradients alone.
TEST_P(PlantedParityTest, gradients_with_ten_bits_are_reported) {
  GoldenRun wrong = right;
  for (auto& [name, values] : wrong.grads) {
    for (double& value : values) {
      value = static_cast<double>(
          std::bit_cast<float>(std::bit_cast<uint32_t>(static_cast<float>(value)) & 0xffffe000U));
    }
  }
  EXPECT_TRUE(reports(compare(golden, wrong), "gradient: the root mean square"));
}

// One label of the first batch is ignored; the sum is still divided by the number of all. The token
// is the last with a label: the first of a sequence attends to itself alone, and its loss has no
// gradient with respect to queries and keys.
TEST_P(PlantedParityTest, a_missing_token_is_reported) {
  Golden changed = golden;
  size_t last = changed.labels.size() / golden.training.at("steps").get<size_t>();
  while (changed.labels[--last] < 0) {
  }
  changed.labels[last] = -1;
  const Comparison c = compare(golden, run_golden(changed));
  EXPECT_TRUE(reports(c, "step 0: "));
  for (const auto& [name, values] : golden.grads) {
    EXPECT_TRUE(reports(c, "gradient " + name)) << name;
  }
}

// Ten times too large, as if one model's default were used for another.
TEST_P(PlantedParityTest, a_wrong_eps_is_reported) {
  Golden changed = golden;
  changed.dims.norm_eps *= 10;
  const Comparison c = compare(golden, run_golden(changed));
  EXPECT_TRUE(reports(c, "gradient embedding.tokens"));
  EXPECT_TRUE(reports(c, "trained weight embedding.tokens"));
  if (!golden.dims.qk_norm) return;
  changed = golden;
  changed.dims.qk_norm_eps *= 10;
  EXPECT_TRUE(reports(compare(golden, run_golden(changed)), "gradient blocks.0.q_norm.weight"));
}

INSTANTIATE_TEST_SUITE_P(Goldens, PlantedParityTest, golden_models,
                         [](const auto& model) { return std::string(model.param); });

}  // namespace
}  // namespace trireme::tests
