// SPDX-License-Identifier: Apache-2.0
// Plan as JSON, both ways. Every field is written; reading requires every field and refuses unknown
// ones, so that a plan of another version is not misread silently.
#include <algorithm>
#include <array>

#include "spec/json_reader.h"
#include "spec/plan.h"

namespace trireme::spec {
namespace {

using base::Json;

constexpr std::array<Axis, static_cast<size_t>(Axis::count)> axes = {
    Axis::pp,  Axis::dp,    Axis::zero, Axis::cp, Axis::tp,
    Axis::edp, Axis::ezero, Axis::ep,   Axis::etp};

std::string dtype_name(base::DType dtype) { return std::string(base::name_of(dtype)); }

// The types of GEMM operands follow from the name, and blocks in bf16 from the layout.
Json recipe_to_json(const Recipe& recipe) {
  return {{"name", recipe.name},
          {"storage", dtype_name(recipe.storage)},
          {"grad", dtype_name(recipe.grad)}};
}

// Earlier versions wrote, for each role of a GEMM operand, a type with a scaling.
void ignore_unscaled_operands(JsonReader& in, const Recipe& recipe) {
  const Json operand = {{"dtype", dtype_name(recipe.storage)},
                        {"block_rows", 0},
                        {"block_cols", 0},
                        {"scaling", "none"}};
  in.ignore("gemm", Json(recipe.gemm.size(), operand));
  in.ignore("amax_history", 0);
}

void take_bf16_blocks(const Layout& l, Recipe& recipe) {
  if (!recipe.fp8) return;
  recipe.first_blocks = l.bf16_first;
  recipe.last_blocks = l.bf16_last;
  recipe.other_blocks = l.bf16_blocks;
}

Recipe recipe_from_json(JsonReader in) {
  Recipe recipe = recipe_from_name(in.get<std::string>("name"));
  in.ignore("storage", dtype_name(recipe.storage));
  recipe.grad = in.dtype("grad");
  ignore_unscaled_operands(in, recipe);
  in.finish();
  return recipe;
}

struct MemoryField {
  const char* name;
  int64_t MemoryTable::*field;
};
constexpr std::array<MemoryField, 14> memory_fields = {
    {{"params", &MemoryTable::params},
     {"grads", &MemoryTable::grads},
     {"optim", &MemoryTable::optim},
     {"stash_inputs", &MemoryTable::stash_inputs},
     {"stash_f_to_b", &MemoryTable::stash_f_to_b},
     {"stash_f_to_w", &MemoryTable::stash_f_to_w},
     {"stash_b_to_w", &MemoryTable::stash_b_to_w},
     {"stash_gradients", &MemoryTable::stash_gradients},
     {"stash_recompute", &MemoryTable::stash_recompute},
     {"stash_stream", &MemoryTable::stash_stream},
     {"stash_gaps", &MemoryTable::stash_gaps},
     {"scratch", &MemoryTable::scratch},
     {"comm", &MemoryTable::comm},
     {"staging", &MemoryTable::staging}}};

Json prediction_to_json(const Prediction& p) {
  Json memory = Json::array();
  for (const MemoryTable& m : p.memory) {
    Json entry = Json::object();
    for (const MemoryField& f : memory_fields) entry[f.name] = m.*f.field;
    memory.push_back(entry);
  }
  return {{"memory_bytes", memory},
          {"model_flops", p.model_flops},
          {"hardware_flops", p.hardware_flops}};
}

Prediction prediction_from_json(JsonReader in) {
  Prediction p;
  for (const Json& entry : in.at("memory_bytes")) {
    JsonReader reader(entry, "plan.predicted.memory_bytes");
    MemoryTable m;
    for (const MemoryField& f : memory_fields) m.*f.field = reader.get<int64_t>(f.name);
    reader.finish();
    p.memory.push_back(m);
  }
  p.model_flops = in.get<double>("model_flops");
  p.hardware_flops = in.get<double>("hardware_flops");
  in.finish();
  return p;
}

Sizes mesh_from_json(JsonReader in) {
  Sizes mesh;
  for (const Axis axis : axes) {
    const char* name = name_of(axis).data();
    if (axis == Axis::edp && !in.has(name)) continue;  // plans without experts, of earlier versions
    mesh[axis] = in.get<int>(name);
  }
  in.finish();
  return mesh;
}

schedule::Schedule schedule_from_json(JsonReader& in) {
  const auto read = schedule::from_text(in.get<std::string>("schedule"));
  if (!read) throw base::ConfigError("plan.schedule: " + read.reason());
  return read.value();
}

Residency residency_from_json(JsonReader in) {
  const Residency zero{in.get<bool>("params"), in.get<bool>("grads"), in.get<bool>("optim")};
  in.finish();
  return zero;
}

std::vector<Recompute> recompute_from_json(JsonReader& in) {
  std::vector<Recompute> all;
  for (const auto& name : in.get<std::vector<std::string>>("recompute")) {
    const auto policy = recompute_from_name(name);
    if (!policy) {
      throw base::ConfigError("plan: recompute = '" + name +
                              "': allowed are none, selective, full");
    }
    all.push_back(*policy);
  }
  return all;
}

OptimizerTypes optimizer_from_json(JsonReader in) {
  const OptimizerTypes types{in.named("name", optimizer_from_name, all_names<OptimizerKind>()),
                             in.dtype("master")};
  for (const char* moment : {"first_moment", "second_moment"}) {  // of earlier versions
    in.ignore(moment, dtype_name(base::DType::f32));
  }
  in.finish();
  return types;
}

// ---- plans of the first version, which have no layout

// Finds the named schedule with these actions; otherwise the schedule becomes a custom one.
void take_schedule(const schedule::Schedule& schedule, Layout& l) {
  l.chunks = schedule.stages() / std::max(1, schedule.ranks);
  if (l.pp == 1 && l.chunks == 1) return;
  for (const schedule::Named& named : schedule::catalogue()) {
    const auto made = schedule::generate(named.kind, {l.pp, schedule.microbatches, l.chunks});
    if (!made || schedule::add_missing(made.value()) != schedule) continue;
    l.schedule = named.kind;
    return;
  }
  l.custom_schedule = schedule;
}

// Reads the policy of the blocks that recompute, and their number.
void take_recompute(const std::vector<Recompute>& recompute, Layout& l) {
  const auto blocks = static_cast<int>(recompute.size()) - 2;
  int count = 0;
  for (const Recompute policy : recompute) {
    if (policy == Recompute::none) continue;
    l.recompute = policy;
    ++count;
  }
  if (count > 0 && count < blocks) l.recompute_blocks = count;
}

// Keys that never had another value.
void ignore_reserved(JsonReader& in) {
  in.ignore("context", "none");
  in.ignore("bucket_bytes", 0);
  in.ignore("expert_capacity", 0);
  in.ignore("optimizer_place", "device");
  in.ignore("stash_place", "device");
}

Layout layout_of_first_version(JsonReader& in, const Plan& plan) {
  Layout l;
  l.tp = plan.mesh[Axis::tp];
  l.cp = plan.mesh[Axis::cp];
  l.ulysses = 1;
  l.pp = plan.mesh[Axis::pp];
  l.dp_replicate = plan.mesh[Axis::dp];
  l.dp_shard = plan.mesh[Axis::zero];
  l.zero_stage = plan.zero.params ? 3 : plan.zero.grads ? 2 : plan.zero.optim ? 1 : 0;
  l.sequence_parallel = in.get<bool>("sequence_parallel");
  take_schedule(plan.schedule, l);
  if (plan.stages() > 1) l.first_layers = plan.first_layer_of_stage;
  l.send_buffers = in.get<int>("send_buffers");
  l.micro_batch = in.get<int64_t>("microbatch_sequences");
  l.logical_dp = in.get<int>("logical_dp");
  const int hosted = std::max(1, l.logical_dp / std::max(1, l.data_ranks()));
  l.accumulation = plan.schedule.microbatches / hosted;
  l.reduce = in.named("reduce", reduce_from_name, "once, each");
  take_recompute(plan.recompute, l);
  l.precision = precision_from_name(plan.recipe.name).value_or(Precision::bf16);
  l.grad_dtype = plan.recipe.grad;
  l.master_dtype = plan.optimizer.master;
  l.optimizer = plan.optimizer.kind;
  l.reduce_dtype = in.dtype("reduce_dtype");
  l.reshard = in.get<bool>("keep_params") ? Reshard::never : Reshard::always;
  l.prefetch = in.get<int>("prefetch");
  l.prefetch_after = in.get<bool>("prefetch_after");
  l.head_chunk_rows = plan.head_chunk_rows;
  ignore_reserved(in);
  return l;
}

}  // namespace

Json to_json(const Plan& plan) {
  Json mesh = Json::object();
  for (const Axis axis : axes) mesh[std::string(name_of(axis))] = plan.mesh[axis];
  Json recompute = Json::array();
  for (const Recompute r : plan.recompute) recompute.push_back(std::string(name_of(r)));
  return {
      {"layout", to_json(plan.layout)},
      {"seq_len", plan.seq_len},
      {"document_mask", plan.document_mask},
      {"inference", plan.inference},
      {"keeps_losses", plan.keeps_losses},
      {"mesh", mesh},
      {"schedule", schedule::to_text(plan.schedule)},
      {"first_layer_of_stage", plan.first_layer_of_stage},
      {"zero",
       {{"params", plan.zero.params}, {"grads", plan.zero.grads}, {"optim", plan.zero.optim}}},
      {"recompute", recompute},
      {"recipe", recipe_to_json(plan.recipe)},
      {"optimizer",
       {{"name", std::string(name_of(plan.optimizer.kind))},
        {"master", dtype_name(plan.optimizer.master)}}},
      {"head_chunk_rows", plan.head_chunk_rows},
      {"predicted", prediction_to_json(plan.predicted)},
  };
}

Plan plan_from_json(const Json& json) {
  JsonReader in(json, "plan");
  Plan plan;
  plan.mesh = mesh_from_json(in.object("mesh"));
  plan.schedule = schedule_from_json(in);
  plan.first_layer_of_stage = in.get<std::vector<int>>("first_layer_of_stage");
  plan.zero = residency_from_json(in.object("zero"));
  plan.document_mask = in.get<bool>("document_mask");
  plan.inference = in.get<bool>("inference");
  if (in.has("keeps_losses")) plan.keeps_losses = in.get<bool>("keeps_losses");
  plan.seq_len = in.get<int64_t>("seq_len");
  plan.recompute = recompute_from_json(in);
  plan.recipe = recipe_from_json(in.object("recipe"));
  plan.optimizer = optimizer_from_json(in.object("optimizer"));
  plan.head_chunk_rows = in.get<int64_t>("head_chunk_rows");
  plan.layout = in.has("layout") ? layout_from_json(in.at("layout"), "plan.layout")
                                 : layout_of_first_version(in, plan);
  take_bf16_blocks(plan.layout, plan.recipe);
  plan.predicted = prediction_from_json(in.object("predicted"));
  in.finish();
  return plan;
}

}  // namespace trireme::spec
