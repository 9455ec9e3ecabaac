// SPDX-License-Identifier: Apache-2.0
// Layout as JSON, both ways. Every field is written; reading requires every field, but those of
// context parallelism, experts, ffn_rows and bf16_*, which the first versions did not have.
#include "spec/json_reader.h"
#include "spec/layout/layout.h"

namespace trireme::spec {
namespace {

using base::Json;

template <typename Value>
std::string text_of(Value value) {
  return std::string(name_of(value));
}

}  // namespace

Json to_json(const Layout& l) {
  Json json = {
      {"tp", l.tp},
      {"cp", l.cp},
      {"context_kind", text_of(l.context_kind)},
      {"context_slices", text_of(l.context_slices)},
      {"ulysses", l.ulysses},
      {"pp", l.pp},
      {"dp_replicate", l.dp_replicate},
      {"dp_shard", l.dp_shard},
      {"ep", l.ep},
      {"etp", l.etp},
      {"row_budget", l.row_budget},
      {"overflow", text_of(l.overflow)},
      {"expert_capacity", l.expert_capacity},
      {"zero_stage", l.zero_stage},
      {"sequence_parallel", l.sequence_parallel},
      {"placement", text_of(l.placement)},
      {"schedule", std::string(schedule::name_of(l.schedule))},
      {"chunks", l.chunks},
      {"custom_schedule", nullptr},
      {"first_layers", l.first_layers},
      {"send_buffers", l.send_buffers},
      {"micro_batch", l.micro_batch},
      {"accumulation", l.accumulation},
      {"logical_dp", l.logical_dp},
      {"reduce", text_of(l.reduce)},
      {"recompute", text_of(l.recompute)},
      {"recompute_blocks", l.recompute_blocks},
      {"ffn_rows", l.ffn_rows},
      {"precision", text_of(l.precision)},
      {"bf16_first", l.bf16_first},
      {"bf16_last", l.bf16_last},
      {"bf16_blocks", l.bf16_blocks},
      {"grad_dtype", std::string(base::name_of(l.grad_dtype))},
      {"optimizer", text_of(l.optimizer)},
      {"master_dtype", std::string(base::name_of(l.master_dtype))},
      {"reduce_dtype", std::string(base::name_of(l.reduce_dtype))},
      {"reshard", text_of(l.reshard)},
      {"prefetch", l.prefetch},
      {"prefetch_after", l.prefetch_after},
      {"head_chunk_rows", l.head_chunk_rows},
      {"deterministic", l.deterministic},
  };
  if (l.custom_schedule) json["custom_schedule"] = schedule::to_text(*l.custom_schedule);
  return json;
}

Layout layout_from_json(const Json& json, const std::string& path) {
  JsonReader in(json, path);
  Layout l;
  l.tp = in.get<int>("tp");
  l.cp = in.get<int>("cp");
  if (in.has("context_kind")) {
    l.context_kind = in.named("context_kind", context_kind_from_name, all_names<ContextKind>());
  }
  if (in.has("context_slices")) {
    l.context_slices =
        in.named("context_slices", context_slices_from_name, all_names<ContextSlices>());
  }
  l.ulysses = in.has("ulysses") ? in.get<int>("ulysses") : open_ulysses(l, {});
  l.pp = in.get<int>("pp");
  l.dp_replicate = in.get<int>("dp_replicate");
  l.dp_shard = in.get<int>("dp_shard");
  l.ep = in.get<int>("ep");
  if (in.has("etp")) l.etp = in.get<int>("etp");
  if (in.has("row_budget")) l.row_budget = in.get<double>("row_budget");
  if (in.has("overflow")) {
    l.overflow = in.named("overflow", overflow_from_name, all_names<Overflow>());
  }
  if (in.has("expert_capacity")) l.expert_capacity = in.get<double>("expert_capacity");
  l.zero_stage = in.get<int>("zero_stage");
  l.sequence_parallel = in.get<bool>("sequence_parallel");
  l.placement = in.named("placement", placement_from_name, all_names<Placement>());
  l.schedule = in.named("schedule", schedule::kind_from_name, schedule::listed_names("", true));
  l.chunks = in.get<int>("chunks");
  if (!in.at("custom_schedule").is_null()) {
    const auto read = schedule::from_text(in.get<std::string>("custom_schedule"));
    if (!read) throw base::ConfigError(path + ".custom_schedule: " + read.reason());
    l.custom_schedule = read.value();
  }
  l.first_layers = in.get<std::vector<int>>("first_layers");
  l.send_buffers = in.get<int>("send_buffers");
  l.micro_batch = in.get<int64_t>("micro_batch");
  l.accumulation = in.get<int>("accumulation");
  l.logical_dp = in.get<int>("logical_dp");
  l.reduce = in.named("reduce", reduce_from_name, all_names<ReduceWhen>());
  l.recompute = in.named("recompute", recompute_from_name, "none, selective, full");
  l.recompute_blocks = in.get<int>("recompute_blocks");
  if (in.has("ffn_rows")) l.ffn_rows = in.get<int64_t>("ffn_rows");
  l.precision = in.named("precision", precision_from_name, all_names<Precision>());
  if (in.has("bf16_first")) l.bf16_first = in.get<int>("bf16_first");
  if (in.has("bf16_last")) l.bf16_last = in.get<int>("bf16_last");
  if (in.has("bf16_blocks")) l.bf16_blocks = in.get<std::vector<int>>("bf16_blocks");
  l.grad_dtype = in.dtype("grad_dtype");
  if (in.has("optimizer")) {  // earlier versions had AdamW only
    l.optimizer = in.named("optimizer", optimizer_from_name, all_names<OptimizerKind>());
  }
  l.master_dtype = in.dtype("master_dtype");
  l.reduce_dtype = in.dtype("reduce_dtype");
  l.reshard = in.named("reshard", reshard_from_name, all_names<Reshard>());
  l.prefetch = in.get<int>("prefetch");
  l.prefetch_after = in.get<bool>("prefetch_after");
  l.head_chunk_rows = in.get<int64_t>("head_chunk_rows");
  l.deterministic = in.get<bool>("deterministic");
  in.finish();
  return l;
}

}  // namespace trireme::spec
