// SPDX-License-Identifier: Apache-2.0
#include "config/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/dtype.h"
#include "base/error.h"
#include "config/document.h"
#include "config/spelling.h"
#include "schedule/schedule.h"

namespace trireme::config {
namespace {

namespace fs = std::filesystem;

const std::string recipe_key = "precision.recipe", recipe_alias = "training.dtype";

// At most one degree may be -1. A default of -1 becomes 1 if the user gave another -1; axes that
// the engine does not support become 1.
void settle_rest(Config& c, Report& report) {
  std::vector<std::string> written;
  std::vector<int64_t*> open;
  for (const Key& key : keys_of(c)) {
    if (key.section != "parallelism" || !key.name.ends_with("_degree")) continue;
    int64_t& degree = *std::get<int64_t*>(key.field);
    const std::string path = key.path();
    if (degree != -1) continue;
    const bool is_cut = !key.name.starts_with("context_") && !key.name.starts_with("expert_");
    if (report.was_given(path)) written.push_back(path);
    if (!is_cut) {
      degree = 1;
      continue;
    }
    open.push_back(&degree);
    if (report.was_given(path)) std::swap(open.front(), open.back());
  }
  for (size_t i = 1; i < open.size(); ++i) *open[i] = 1;
  if (written.size() > 1) {
    report.add(
        report.where(written[1]),
        fmt::format("{} = -1: only one degree can be -1 (the remaining ranks), but {} is -1 too "
                    "[degree.one_rest]",
                    written[1], written[0]));
  }
}

void read_schedule_file(Config& c, const fs::path& folder, Report& report) {
  const std::string key = "parallelism.pipeline_parallel_schedule_file";
  std::string& name = c.parallelism.pipeline_parallel_schedule_file;
  c.custom_schedule.reset();
  if (name.empty() || report.is_bad(key)) return;
  const fs::path path = found_from(name, folder);
  try {
    const base::Result<schedule::Schedule> read = schedule::from_text(read_text(path));
    if (read) {
      c.custom_schedule = read.value();
      name = path.string();
      return;
    }
    report.add_bad_key(key, report.where(key),
                       fmt::format("{}: {}: {}", key, path.string(), read.reason()));
  } catch (const base::Error& error) {
    report.add_bad_key(key, report.where(key), fmt::format("{}: {}", key, error.what()));
  }
}

// Reports a schedule that is not in the catalogue; the remaining checks take it for 1F1B.
void check_schedule_name(const Config& c, Report& report) {
  const std::string key = "parallelism.pipeline_parallel_schedule";
  const std::string& name = c.parallelism.pipeline_parallel_schedule;
  if (schedule::kind_from_name(name)) return;
  report.blame({key}, fmt::format("{} = {}: unknown schedule; allowed are {} [schedule.name]", key,
                                  name, schedule::listed_names("or")));
  report.mark_bad(key);
}

// Fills in open fields with the saved values: all of them, or without the reduction, or the batch
// only; the first choice that breaks no rule.
void take_saved_sums(const spec::ModelSizes& model, const SavedSums& saved, int64_t ranks,
                     spec::Workload& work, spec::Layout& asked) {
  for (const auto& [takes_workers, takes_reduce] :
       {std::pair(true, true), std::pair(true, false), std::pair(false, false)}) {
    spec::Layout layout = asked;
    spec::Workload batch = work;
    if (batch.global_batch == 0) batch.global_batch = saved.global_batch_size;
    if (takes_workers && layout.logical_dp == 0) layout.logical_dp = saved.logical_dp;
    if (takes_reduce && layout.reduce == spec::ReduceWhen::automatic) layout.reduce = saved.reduce;
    if (!spec::settle(model, batch, ranks, layout).broken.empty()) continue;
    asked = layout;
    work = batch;
    return;
  }
}

}  // namespace

const spec::LayoutNames& layout_paths() {
  static const spec::LayoutNames paths = {"parallelism.tensor_parallel_degree",
                                          "parallelism.context_parallel_degree",
                                          "parallelism.context_parallel_kind",
                                          "parallelism.context_parallel_slices",
                                          "parallelism.context_parallel_ulysses_degree",
                                          "parallelism.pipeline_parallel_degree",
                                          "parallelism.data_parallel_replicate_degree",
                                          "parallelism.data_parallel_shard_degree",
                                          "parallelism.expert_parallel_degree",
                                          "parallelism.expert_tensor_parallel_degree",
                                          "moe.row_budget",
                                          "moe.overflow",
                                          "moe.capacity",
                                          "parallelism.zero_stage",
                                          "parallelism.sequence_parallel",
                                          "placement",
                                          "parallelism.pipeline_parallel_schedule",
                                          "parallelism.pipeline_parallel_chunks",
                                          "parallelism.pipeline_parallel_schedule_file",
                                          "parallelism.pipeline_parallel_first_layers",
                                          "parallelism.pipeline_parallel_send_buffers",
                                          "training.local_batch_size",
                                          "accumulation",
                                          "training.global_batch_size",
                                          "training.seq_len",
                                          "parallelism.logical_dp",
                                          "parallelism.reduce",
                                          "activation_checkpoint.mode",
                                          "precision.recipe",
                                          "precision.bf16_first",
                                          "precision.bf16_last",
                                          "precision.bf16_blocks",
                                          "optimizer.name",
                                          "training.grad_dtype",
                                          "optimizer.master_dtype",
                                          "parallelism.reduce_dtype",
                                          "parallelism.fsdp_reshard_after_forward",
                                          "parallelism.prefetch",
                                          "training.head_chunk_rows",
                                          "activation_checkpoint.ffn_rows",
                                          "model.dims"};
  return paths;
}

void check_recipe_alias(const std::vector<Entry>& entries, const std::vector<Key>& keys,
                        Report& report) {
  const Entry *recipe = nullptr, *alias = nullptr;
  for (const Entry& entry : entries) {
    const std::string path = fmt::format("{}.{}", entry.section, entry.key);
    if (path == recipe_key) recipe = &entry;
    if (path == recipe_alias) alias = &entry;
  }
  if (recipe == nullptr || alias == nullptr) return;
  const auto* a = std::get_if<std::string>(&recipe->value);
  const auto* b = std::get_if<std::string>(&alias->value);
  if (a == nullptr || b == nullptr) return;
  const auto key = std::ranges::find(keys, recipe_key, &Key::path);
  if (choice_of(*a, key->choices) == choice_of(*b, key->choices)) return;
  report.blame({recipe_key, recipe_alias},
               fmt::format("{} = \"{}\", but {} = \"{}\" ({}): both name the recipe; remove one "
                           "of them, or give both the same value",
                           recipe_key, *a, recipe_alias, *b, alias->where));
}

spec::Workload workload_of(const Config& c) {
  return {.seq_len = c.training.seq_len,
          .global_batch = std::max<int64_t>(0, c.training.global_batch_size),
          .document_mask = c.training.document_mask,
          // The loss of each data set is the sum over its tokens.
          .keeps_losses = c.training.dataset.size() > 1};
}

spec::Layout layout_of(const Config& c) {
  const Parallelism& p = c.parallelism;
  spec::Layout l;
  l.tp = static_cast<int>(p.tensor_parallel_degree);
  l.cp = static_cast<int>(p.context_parallel_degree);
  l.context_kind =
      spec::context_kind_from_name(p.context_parallel_kind).value_or(spec::ContextKind::gather);
  l.context_slices = spec::context_slices_from_name(p.context_parallel_slices)
                         .value_or(spec::ContextSlices::zigzag);
  l.ulysses = static_cast<int>(p.context_parallel_ulysses_degree);
  l.pp = static_cast<int>(p.pipeline_parallel_degree);
  l.dp_replicate = static_cast<int>(p.data_parallel_replicate_degree);
  l.dp_shard = static_cast<int>(p.data_parallel_shard_degree);
  l.ep = static_cast<int>(p.expert_parallel_degree);
  l.etp = static_cast<int>(p.expert_tensor_parallel_degree);
  l.row_budget = c.moe.row_budget;
  l.overflow = spec::overflow_from_name(c.moe.overflow).value_or(spec::Overflow::strict);
  l.expert_capacity = c.moe.capacity;
  l.zero_stage = static_cast<int>(p.zero_stage);
  l.sequence_parallel = p.sequence_parallel;
  l.schedule =
      schedule::kind_from_name(p.pipeline_parallel_schedule).value_or(schedule::Kind::one_f_one_b);
  l.chunks = static_cast<int>(p.pipeline_parallel_chunks);
  l.custom_schedule = c.custom_schedule;
  l.first_layers.assign(p.pipeline_parallel_first_layers.begin(),
                        p.pipeline_parallel_first_layers.end());
  l.send_buffers = static_cast<int>(p.pipeline_parallel_send_buffers);
  l.micro_batch = c.training.local_batch_size;
  l.logical_dp = static_cast<int>(p.logical_dp);
  l.reduce = spec::reduce_from_name(p.reduce).value_or(spec::ReduceWhen::automatic);
  l.recompute =
      spec::recompute_from_name(c.activation_checkpoint.mode).value_or(spec::Recompute::none);
  l.recompute_blocks = static_cast<int>(c.activation_checkpoint.blocks);
  l.ffn_rows = c.activation_checkpoint.ffn_rows;
  l.precision = spec::precision_from_name(c.precision.recipe).value_or(spec::Precision::bf16);
  l.bf16_first = static_cast<int>(c.precision.bf16_first);
  l.bf16_last = static_cast<int>(c.precision.bf16_last);
  l.bf16_blocks.assign(c.precision.bf16_blocks.begin(), c.precision.bf16_blocks.end());
  l.grad_dtype = base::dtype_from_name(c.training.grad_dtype);
  l.optimizer = c.optimizer.name == "Muon" ? spec::OptimizerKind::muon : spec::OptimizerKind::adamw;
  l.master_dtype = base::dtype_from_name(c.optimizer.master_dtype);
  l.reduce_dtype = base::dtype_from_name(p.reduce_dtype);
  l.reshard =
      spec::reshard_from_name(p.fsdp_reshard_after_forward).value_or(spec::Reshard::automatic);
  l.prefetch = static_cast<int>(p.prefetch);
  l.prefetch_after = p.prefetch_after;
  l.head_chunk_rows = c.training.head_chunk_rows;
  l.deterministic = c.system.determinism == "l1";
  return l;
}

spec::Layout settled_layout(const Config& c) {
  return spec::settle(spec::sizes_of(c.dims), workload_of(c), 0, layout_of(c)).layout;
}

void set_layout(Config& c, const spec::Layout& l) {
  Parallelism& p = c.parallelism;
  p.tensor_parallel_degree = l.tp;
  p.context_parallel_degree = l.cp;
  p.context_parallel_kind = spec::name_of(l.context_kind);
  p.context_parallel_slices = spec::name_of(l.context_slices);
  p.context_parallel_ulysses_degree = l.ulysses;
  p.pipeline_parallel_degree = l.pp;
  p.data_parallel_replicate_degree = l.dp_replicate;
  p.data_parallel_shard_degree = l.dp_shard;
  p.expert_parallel_degree = l.ep;
  p.expert_tensor_parallel_degree = l.etp;
  c.moe.row_budget = l.row_budget;
  c.moe.overflow = std::string(spec::name_of(l.overflow));
  c.moe.capacity = l.expert_capacity;
  p.zero_stage = l.zero_stage;
  p.sequence_parallel = l.sequence_parallel;
  if (schedule::kind_from_name(p.pipeline_parallel_schedule) != l.schedule) {
    p.pipeline_parallel_schedule = schedule::name_of(l.schedule);
  }
  p.pipeline_parallel_chunks = l.chunks;
  c.custom_schedule = l.custom_schedule;
  p.pipeline_parallel_first_layers.assign(l.first_layers.begin(), l.first_layers.end());
  p.pipeline_parallel_send_buffers = l.send_buffers;
  c.training.local_batch_size = l.micro_batch;
  c.training.global_batch_size = l.accumulation > 0 && l.logical_dp > 0 ? l.global_batch() : -1;
  p.logical_dp = l.logical_dp;
  p.reduce = spec::name_of(l.reduce);
  c.activation_checkpoint.mode = spec::name_of(l.recompute);
  c.activation_checkpoint.blocks = l.recompute_blocks;
  c.activation_checkpoint.ffn_rows = l.ffn_rows;
  c.precision.recipe = spec::name_of(l.precision);
  c.precision.bf16_first = l.bf16_first;
  c.precision.bf16_last = l.bf16_last;
  c.precision.bf16_blocks.assign(l.bf16_blocks.begin(), l.bf16_blocks.end());
  c.training.grad_dtype = base::name_of(l.grad_dtype);
  c.optimizer.name = l.optimizer == spec::OptimizerKind::muon ? "Muon" : "AdamW";
  c.optimizer.master_dtype = base::name_of(l.master_dtype);
  p.reduce_dtype = base::name_of(l.reduce_dtype);
  p.fsdp_reshard_after_forward = spec::name_of(l.reshard);
  p.prefetch = l.prefetch;
  p.prefetch_after = l.prefetch_after;
  c.training.head_chunk_rows = l.head_chunk_rows;
  c.system.determinism = l.deterministic ? "l1" : "fast";
}

void read_schedule(Config& c, const fs::path& folder, Report& report) {
  read_schedule_file(c, folder, report);
  check_schedule_name(c, report);
}

void solve_layout(Config& c, int world, const std::optional<SavedSums>& saved, Report& report) {
  settle_rest(c, report);
  spec::Layout asked = layout_of(c);
  spec::Workload work = workload_of(c);
  const spec::ModelSizes sizes =
      report.is_bad("model.dims") ? spec::ModelSizes{} : spec::sizes_of(c.dims);
  if (saved) take_saved_sums(sizes, *saved, world, work, asked);
  spec::LayoutNames names = layout_paths();
  if (!report.was_given(recipe_key) && report.was_given(recipe_alias)) {
    names[static_cast<size_t>(spec::LayoutKey::precision)] = recipe_alias;
  }
  const spec::Settled settled = spec::settle(sizes, work, world, asked, spec::Whose::engine, names);
  for (const spec::Broken& broken : settled.broken) {
    std::vector<std::string> keys;
    for (const spec::LayoutKey key : broken.rule->keys) {
      keys.push_back(names[static_cast<size_t>(key)]);
    }
    report.blame(keys, spec::to_text(broken));
  }
  const spec::Layout& l = settled.layout;
  Parallelism& p = c.parallelism;
  p.data_parallel_replicate_degree = l.dp_replicate;
  p.data_parallel_shard_degree = l.dp_shard;
  p.tensor_parallel_degree = l.tp;
  p.pipeline_parallel_degree = l.pp;
  p.zero_stage = l.zero_stage;
  p.logical_dp = l.logical_dp;
  p.reduce = spec::name_of(l.reduce);
  c.training.global_batch_size = work.global_batch > 0 ? work.global_batch : l.global_batch();
}

}  // namespace trireme::config
