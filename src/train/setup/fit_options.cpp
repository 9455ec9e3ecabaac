// SPDX-License-Identifier: Apache-2.0
// Which changes of a plan save memory, and what each costs.
#include <algorithm>
#include <cmath>
#include <optional>

#include "base/check.h"
#include "spec/facts/facts.h"
#include "spec/parallel/data_parallel.h"
#include "train/setup/fit.h"

namespace trireme::train {
namespace {

// How far each setting is changed; 0: as requested.
struct Levels {
  int head_chunk = 0;   // halvings
  int masters = 0;      // 1: u16
  int grads = 0;        // 1: bf16
  int recompute = 0;    // steps from none to selective to full
  int micro_batch = 0;  // halvings

  bool is_within(const Levels& o) const {
    return head_chunk <= o.head_chunk && masters <= o.masters && grads <= o.grads &&
           recompute <= o.recompute && micro_batch <= o.micro_batch;
  }
  int total() const { return head_chunk + masters + grads + recompute + micro_batch; }
  bool operator==(const Levels&) const = default;
};

constexpr int64_t min_chunk = 256;  // rows; below, products of the head become too thin

spec::Recompute policy_of(const spec::Plan& plan) {
  return *std::max_element(plan.recompute.begin(), plan.recompute.end());
}

int64_t worker_sequences(const FitJob& job) {
  return job.layout.micro_batch * job.layout.accumulation;
}

// Micro-batch sizes that divide a worker's share of the batch, each at most half of the one before.
// A custom schedule fixes the number of micro-batches.
std::vector<int64_t> micro_batches_of(const FitJob& job) {
  const int64_t global = worker_sequences(job);
  std::vector<int64_t> sizes = {job.layout.micro_batch};
  if (job.layout.custom_schedule) return sizes;
  while (sizes.back() > 1) {
    int64_t size = sizes.back() / 2;
    while (global % size != 0) --size;
    sizes.push_back(size);
  }
  return sizes;
}

std::vector<int64_t> chunks_of(const spec::Plan& plan) {
  std::vector<int64_t> rows = {std::min(plan.head_chunk_rows, plan.microbatch_tokens())};
  while (rows.back() / 2 >= min_chunk) rows.push_back(rows.back() / 2);
  return rows;
}

// Returns the seconds of a step on a nominal GPU: every operation takes the time of its FLOPs or of
// its bytes, whichever is longer. Only ratios between plans of one model are used.
double nominal_seconds(const spec::ModelSpec& model, const spec::Plan& plan,
                       const spec::Backend& backend) {
  const double flops = plan.recipe.storage == base::DType::f32 ? 50e12 : 650e12;  // per second
  constexpr double bytes = 3.5e12;
  double sum = 0;
  for (int layer = 0; layer < static_cast<int>(model.layers.size()); ++layer) {
    const spec::Facts f = spec::facts(model, layer, spec::local_shape_of(plan), plan.recipe,
                                      plan.recompute[static_cast<size_t>(layer)], backend);
    for (const auto* ops : {&f.f, &f.b, &f.w, &f.r}) {
      for (const spec::OpCost& op : *ops) {
        sum += std::max(op.flops / flops, static_cast<double>(op.bytes) / bytes);
      }
    }
  }
  sum *= plan.schedule.microbatches;
  // Once a step: gradients are zeroed, summed and read; parameters and optimizer state are written.
  const spec::MemoryTable& m = plan.predicted.largest();
  return sum + static_cast<double>(3 * m.grads + 2 * m.optim + m.params) / bytes;
}

// Returns the plan with these changes; none: the layout does not allow them.
std::optional<spec::Plan> changed(const FitJob& job, const Levels& by) {
  spec::Layout l = job.layout;
  l.micro_batch = micro_batches_of(job)[static_cast<size_t>(by.micro_batch)];
  if (!job.work.inference) {
    l.accumulation = static_cast<int>(worker_sequences(job) / l.micro_batch);
  }
  if (by.masters > 0) l.master_dtype = base::DType::u16;
  if (by.grads > 0) l.grad_dtype = base::DType::bf16;
  l.recompute = static_cast<spec::Recompute>(static_cast<int>(policy_of(job.plan)) + by.recompute);
  l.head_chunk_rows = by.head_chunk == 0 ? job.plan.head_chunk_rows
                                         : chunks_of(job.plan)[static_cast<size_t>(by.head_chunk)];
  // As reduce = "auto" does.
  if (l.shards_grads() && l.accumulation > 1) l.reduce = spec::ReduceWhen::each;
  spec::Solved solved = spec::solve(job.model, job.work, l, job.backend);
  if (!solved.broken.empty()) return std::nullopt;
  return std::move(solved.plan);
}

std::string how_text(const spec::Plan& plan, const Levels& by, const FitKeys& keys) {
  std::string text;
  const auto add = [&text](const std::string& key, const std::string& value) {
    if (key.empty()) return;
    text += (text.empty() ? "" : " ") + key + value;
  };
  if (by.head_chunk > 0) add(keys.head_chunk, fmt::format("{}", plan.head_chunk_rows));
  if (by.masters > 0) add(keys.master_dtype, "u16");
  if (by.grads > 0) add(keys.grad_dtype, "bf16");
  if (by.recompute > 0) add(keys.recompute, std::string(spec::name_of(policy_of(plan))));
  if (by.micro_batch > 0) {
    add(keys.micro_batch, fmt::format("{}", plan.layout.micro_batch));
    add(keys.global_batch, fmt::format("{}", plan.layout.micro_batch * plan.schedule.microbatches *
                                                 spec::data_ranks(plan.mesh)));
    add(keys.accumulate, fmt::format("{}", spec::worker_microbatches(plan)));
  }
  return text;
}

std::string price_text(double extra_time, const Levels& by) {
  std::string text = extra_time < 0.01 ? "about the same time (estimated)"
                                       : fmt::format("about {:.0f} % more time (estimated)",
                                                     std::ceil(100 * extra_time));
  if (by.grads > 0) text += ", gradients summed in bf16 are less exact";
  return text;
}

// Returns how many levels each setting has, the first of them "unchanged".
Levels counts_of(const FitJob& job, const FitKeys& keys) {
  const spec::Plan& plan = job.plan;
  const auto count = [](bool can, size_t options) { return can ? static_cast<int>(options) : 1; };
  const bool trains = !plan.inference;
  return {.head_chunk = count(!keys.head_chunk.empty(), chunks_of(plan).size()),
          .masters = count(!keys.master_dtype.empty() && trains &&
                               plan.recipe.storage == base::DType::bf16 &&
                               plan.optimizer.master == base::DType::f32,
                           2),
          .grads = count(!keys.grad_dtype.empty() && trains &&
                             plan.recipe.grad == base::DType::f32 && !plan.recipe.has_loss_scale(),
                         2),
          .recompute =
              count(!keys.recompute.empty() && trains, 3 - static_cast<size_t>(policy_of(plan))),
          .micro_batch = count(!keys.micro_batch.empty(), micro_batches_of(job).size())};
}

FitOption option_of(const FitJob& job, spec::Plan next, const Levels& by, const FitKeys& keys) {
  const double extra = nominal_seconds(job.model, next, job.backend) /
                           nominal_seconds(job.model, job.plan, job.backend) -
                       1;
  // Less exact gradients count as much as a hundredth of the time.
  const double cost = extra + 0.01 * by.grads;
  std::string how = how_text(next, by, keys);
  return {std::move(next), std::move(how), price_text(extra, by), cost};
}

// Returns all changes below `end`, smaller ones first, so that a change which contains one that
// fits can be left out.
std::vector<Levels> changes_within(const Levels& end) {
  std::vector<Levels> all;
  for (int c = 0; c < end.head_chunk; ++c) {
    for (int m = 0; m < end.masters; ++m) {
      for (int g = 0; g < end.grads; ++g) {
        for (int r = 0; r < end.recompute; ++r) {
          for (int b = 0; b < end.micro_batch; ++b) {
            const Levels by{c, m, g, r, b};
            if (by.total() > 0) all.push_back(by);
          }
        }
      }
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Levels& a, const Levels& b) { return a.total() < b.total(); });
  return all;
}

}  // namespace

std::vector<FitOption> options_within(const FitJob& job, int64_t bytes, const FitKeys& keys) {
  const Levels end = counts_of(job, keys);
  std::vector<Levels> fitting;
  std::vector<FitOption> options;
  for (const Levels& by : changes_within(end)) {
    if (std::any_of(fitting.begin(), fitting.end(),
                    [&by](const Levels& smaller) { return smaller.is_within(by); })) {
      continue;
    }
    std::optional<spec::Plan> next = changed(job, by);
    if (!next || job.memory(*next).total() > bytes) continue;
    fitting.push_back(by);
    options.push_back(option_of(job, *std::move(next), by, keys));
  }
  std::stable_sort(options.begin(), options.end(), [](const FitOption& a, const FitOption& b) {
    return a.relative_cost < b.relative_cost;
  });
  return options;
}

FitOption smallest_option(const FitJob& job, const FitKeys& keys) {
  const Levels end = counts_of(job, keys);
  Levels by{end.head_chunk - 1, end.masters - 1, end.grads - 1, end.recompute - 1,
            end.micro_batch - 1};
  for (; by.micro_batch > 0; --by.micro_batch) {
    if (auto next = changed(job, by)) return option_of(job, *std::move(next), by, keys);
  }
  return option_of(job, changed(job, by).value_or(job.plan), by, keys);
}

}  // namespace trireme::train
