// SPDX-License-Identifier: Apache-2.0
#include "train/verify/verify_precision.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/shape.h"
#include "spec/facts/facts.h"
#include "train/numerics/gather_numerics.h"
#include "train/setup/rank.h"
#include "train/setup/setup.h"
#include "train/verify/verify_source.h"

namespace trireme::train {
namespace {

using spec::Precision;

// Sizes that take seconds on a CPU. Smaller models run as they are.
constexpr double max_parameters = 12e6;
constexpr int64_t max_width = 384, max_vocab = 2048, max_batch_tokens = 512, max_seq_len = 256;
constexpr int fp8_blocks = 3;  // besides those that stay in bf16

struct PrecisionJob {
  spec::ModelDims dims;
  spec::Workload work;
  spec::Layout layout;
  std::vector<std::string> notes;
};

// Keeps the shape of heads and the ratio of widths.
void scale_model(spec::ModelDims& d, const spec::Layout& l) {
  const int64_t head_dim = d.head_dim == 0 ? d.hidden / d.heads : d.head_dim;
  const int64_t kv_heads = d.kv_heads == 0 ? d.heads : d.kv_heads;
  const int64_t queries = d.heads / kv_heads;
  d.layers = std::min(d.layers, l.bf16_first + l.bf16_last + fp8_blocks);
  if (d.hidden > max_width) {
    const double ratio = static_cast<double>(max_width) / static_cast<double>(d.hidden);
    const auto scaled = [ratio](int64_t size) {
      return base::round_up(static_cast<int64_t>(static_cast<double>(size) * ratio),
                            spec::scale_block);
    };
    d.ffn = scaled(d.ffn);
    if (d.moe) d.moe->ffn = scaled(d.moe->ffn);
    if (d.moe && d.moe->shared_ffn > 0) d.moe->shared_ffn = scaled(d.moe->shared_ffn);
    // All heads together are a multiple of scale_block wide.
    const auto wanted = static_cast<int64_t>(static_cast<double>(kv_heads) * ratio);
    d.kv_heads = std::max<int64_t>(1, wanted);
    while (d.kv_heads * queries * head_dim % spec::scale_block != 0 ||
           d.kv_heads * head_dim % spec::scale_block != 0) {
      ++d.kv_heads;
    }
    d.heads = d.kv_heads * queries;
    d.head_dim = head_dim;
    d.hidden = max_width;
  }
  d.vocab = std::min(d.vocab, max_vocab);
}

PrecisionJob scaled_job(const VerifyJob& job) {
  PrecisionJob small{job.dims, job.work, job.layout, {}};
  spec::Layout& l = small.layout;
  l.tp = l.cp = l.pp = 1;
  l.ep = l.etp = 1;
  l.context_kind = spec::ContextKind::gather;
  l.context_slices = spec::ContextSlices::zigzag;
  l.ulysses = 1;
  spec::set_data_ranks(l, 1, 0);
  l.logical_dp = 1;
  l.custom_schedule.reset();
  l.first_layers.clear();
  l.chunks = 1;
  l.accumulation = 1;
  l.sequence_parallel = false;
  small.work.global_batch = 0;
  small.work.seq_len = std::min(small.work.seq_len, max_seq_len);
  l.micro_batch =
      std::max<int64_t>(1, std::min(l.micro_batch, max_batch_tokens / small.work.seq_len));
  while (l.micro_batch * small.work.seq_len % spec::scale_block != 0 &&
         l.micro_batch < spec::scale_block) {
    ++l.micro_batch;
  }
  l.head_chunk_rows = 0;
  if (spec::estimated_parameters(job.dims) > max_parameters) {
    scale_model(small.dims, l);
    std::erase_if(l.bf16_blocks, [&](int block) { return block >= small.dims.layers; });
    small.notes.push_back(fmt::format(
        "the model has {} of {} blocks, hidden {} of {}, vocabulary {} of {}", small.dims.layers,
        job.dims.layers, small.dims.hidden, job.dims.hidden, small.dims.vocab, job.dims.vocab));
  }
  return small;
}

struct RecipeRun {
  spec::Plan plan;
  double loss = 0;
  std::map<std::string, std::vector<float>> grads;  // by parameter
  std::vector<LayerFigures> numerics;
};

RecipeRun run_recipe(const VerifyJob& job, const PrecisionJob& small, const spec::ModelSpec& model,
                     Precision precision) {
  spec::Layout layout = small.layout;
  layout.precision = precision;
  layout.grad_dtype = layout.reduce_dtype = base::DType::f32;
  layout.master_dtype = base::DType::f32;
  Platform platform = make_platform(job.system);
  RecipeRun run{.plan = spec::solve_or_throw(model, small.work, layout, platform.backend)};
  engine::EngineOptions options = job.engine;
  options.capture = false;
  engine::Engine engine(*platform.device, model, run.plan, platform.backend, options);
  const int64_t step = 0;
  VerifySource source(run.plan, spec::Coord{}, spec::vocab_of(model), step);
  engine.measure_numerics(true);
  engine.accumulate(source);
  for (const engine::Engine::ParamInfo& param : engine.parameters()) {
    run.grads[param.name] = engine.read_grads(param.name);
  }
  engine.apply(0);  // quantises the weights, which it does not change
  run.loss = engine.report().mean_loss;
  Rank alone(nullptr, run.plan.mesh, *platform.device);
  run.numerics = gather_numerics(engine, alone, model, true);
  return run;
}

// Sums from which the distance of a tensor, or of several, follows.
struct Sums {
  double difference2 = 0, product = 0, own2 = 0, reference2 = 0;

  void add(const std::vector<float>& own, const std::vector<float>& reference) {
    for (size_t i = 0; i < own.size(); ++i) {
      const double a = own[i], b = reference[i];
      difference2 += (a - b) * (a - b);
      product += a * b;
      own2 += a * a;
      reference2 += b * b;
    }
  }
  void add(const Sums& other) {
    difference2 += other.difference2;
    product += other.product;
    own2 += other.own2;
    reference2 += other.reference2;
  }
  GradientDistance distance() const {
    const double sizes = std::sqrt(own2 * reference2);
    const bool are_equal = difference2 == 0;
    return {.relative = are_equal ? 0 : std::sqrt(difference2 / reference2),
            .cosine = are_equal ? 1 : product / sizes};
  }
};

bool is_matrix(const spec::Param& param) { return param.shard.shape.size() > 1; }

// Not a number fails, too.
bool is_at_least(double value, double bound) { return value >= bound; }

class PrecisionComparison {
 public:
  PrecisionComparison(const spec::ModelSpec& model, PrecisionReport& report,
                      const PrecisionBounds& bounds)
      : model_(model), report_(report), bounds_(bounds) {}

  void add_layers(const RecipeRun& exact, const RecipeRun& bf16, const RecipeRun& own) {
    for (int layer = 0; layer < static_cast<int>(model_.layers.size()); ++layer) {
      PrecisionLayer of{
          .layer = layer,
          .name = spec::name_of_layer(model_, layer),
          .is_fp8 = spec::layer_recipe(own.plan.recipe, model_, layer).fp8.has_value()};
      Sums all, all_bf16;
      for (const spec::Param& param : spec::params_of(model_, layer)) {
        const std::string& name = param.shard.name;
        if (param.tied_copy || !exact.grads.contains(name)) continue;
        Sums sums, sums_bf16;
        sums.add(own.grads.at(name), exact.grads.at(name));
        sums_bf16.add(bf16.grads.at(name), exact.grads.at(name));
        if (sums.reference2 == 0) continue;
        of.params.push_back({name, sums.distance(), sums_bf16.distance()});
        all.add(sums);
        all_bf16.add(sums_bf16);
        if (is_matrix(param)) add_worst(matrix_, sums.distance().cosine, name);
      }
      if (of.params.empty()) continue;
      of.recipe = all.distance();
      of.bf16 = all_bf16.distance();
      add_worst(layer_, of.recipe.cosine, of.name);
      report_.layers.push_back(std::move(of));
    }
  }

  void add_numerics(const std::vector<LayerFigures>& numerics) {
    report_.numerics = numerics;
    for (const LayerFigures& layer : numerics) {
      for (int q = 0; q < spec::quantized_count; ++q) {
        const auto role = static_cast<spec::Quantized>(q);
        const RoleFigures& of = layer[role];
        if (!of.is_measured || of.amax == 0) continue;
        const std::string name =
            fmt::format("{} of {}", spec::name_of(role), spec::name_of_layer(model_, layer.layer));
        add_worst(spec::is_gradient(role) ? gradient_ : forward_, of.snr_db, name);
      }
    }
  }

  void add_checks() {
    const double difference = std::abs(report_.loss - report_.loss_fp32) / report_.loss_fp32;
    report_.checks.push_back(
        {.name = "loss",
         .recipe = report_.recipe.name,
         .ok = difference <= bounds_.loss,
         .error = difference,
         .bound = bounds_.loss,
         .detail = fmt::format("{:.6f}, in fp32 {:.6f}", report_.loss, report_.loss_fp32),
         .hint = "look at the layers whose gradients differ most"});
    add_least("gradients of layers", layer_, bounds_.layer_cosine, "cosine");
    add_least("gradients of matrices", matrix_, bounds_.matrix_cosine, "cosine");
    add_least("codes of activations and weights", forward_, bounds_.forward_snr_db, "dB");
    add_least("codes of gradients", gradient_, bounds_.gradient_snr_db, "dB");
  }

 private:
  struct Worst {
    bool is_known = false;
    double value = 0;
    std::string name;
  };
  static void add_worst(Worst& worst, double value, const std::string& name) {
    if (worst.is_known && value >= worst.value) return;
    worst = {true, value, name};
  }
  void add_least(const char* check, const Worst& worst, double bound, const char* unit) {
    if (!worst.is_known) return;
    report_.checks.push_back(
        {.name = check,
         .recipe = report_.recipe.name,
         .ok = is_at_least(worst.value, bound),
         .error = worst.value,
         .bound = bound,
         .detail = fmt::format("lowest {} {:.4g}, at least {:.4g}: {}", unit, worst.value, bound,
                               worst.name),
         .hint = "precision.bf16_blocks keeps a block in bf16; fp8-block has finer scales"});
  }

  const spec::ModelSpec& model_;
  PrecisionReport& report_;
  const PrecisionBounds bounds_;
  Worst layer_, matrix_, forward_, gradient_;
};

}  // namespace

PrecisionBounds bounds_of(Precision precision) {
  switch (precision) {
    case Precision::fp32:
      return {.loss = 1e-6, .layer_cosine = 0.999999, .matrix_cosine = 0.99999};
    case Precision::bf16:
      return {.loss = 2e-3, .layer_cosine = 0.999, .matrix_cosine = 0.998};
    case Precision::fp16:
      return {.loss = 5e-4, .layer_cosine = 0.9999, .matrix_cosine = 0.999};
    default: {
      // Gradients have E4M3 codes, too, where a scale has 128 values.
      const bool is_block = precision == Precision::fp8_block;
      return {.loss = 2e-3,
              .layer_cosine = 0.98,
              .matrix_cosine = 0.975,
              .forward_snr_db = 28,
              .gradient_snr_db = is_block ? 28.0 : 22.0};
    }
  }
}

bool PrecisionReport::ok() const {
  return std::ranges::all_of(checks, [](const VerifyCheck& check) { return check.ok; });
}

PrecisionReport verify_precision(const VerifyJob& job) {
  const PrecisionJob small = scaled_job(job);
  const spec::ModelSpec model = spec::make_model(small.dims);
  int64_t done = 0;
  const auto run = [&](Precision precision) {
    RecipeRun of = run_recipe(job, small, model, precision);
    if (job.progress) job.progress(++done, of.plan.recipe.name);
    return of;
  };
  const RecipeRun own = run(job.layout.precision);
  const RecipeRun bf16 = run(Precision::bf16), exact = run(Precision::fp32);
  PrecisionReport report{.dims = small.dims,
                         .recipe = own.plan.recipe,
                         .notes = small.notes,
                         .tokens = own.plan.microbatch_tokens(),
                         .loss_fp32 = exact.loss,
                         .loss_bf16 = bf16.loss,
                         .loss = own.loss};
  PrecisionComparison comparison(model, report, bounds_of(job.layout.precision));
  comparison.add_layers(exact, bf16, own);
  comparison.add_numerics(own.numerics);
  comparison.add_checks();
  return report;
}

}  // namespace trireme::train
