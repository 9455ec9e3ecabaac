// SPDX-License-Identifier: Apache-2.0
// Plan as JSON, both ways. Every field is written; reading demands every field and refuses unknown
// ones, so that a plan from another version cannot be half understood.
#include <array>
#include <set>

#include "base/check.h"
#include "base/error.h"
#include "base/json.h"
#include "spec/plan.h"

namespace trireme::spec {
namespace {

using base::Json;

template <typename Enum, size_t n>
struct Names {
  std::array<std::string_view, n> names;

  std::string write(Enum value) const { return std::string(names[static_cast<size_t>(value)]); }
  Enum read(const std::string& name, std::string_view key) const {
    std::string allowed;
    for (size_t i = 0; i < n; ++i) {
      if (names[i] == name) return static_cast<Enum>(i);
      allowed += fmt::format("{}{}", i == 0 ? "" : ", ", names[i]);
    }
    throw base::ConfigError(fmt::format("plan: {} = '{}': allowed are {}", key, name, allowed));
  }
};

constexpr Names<Context, 5> contexts{{"none", "ring", "striped", "ulysses", "ulysses_ring"}};
constexpr Names<ReduceWhen, 2> reduces{{"once", "each"}};
constexpr Names<Recompute, 3> recomputes{{"none", "selective", "full"}};
constexpr Names<Place, 2> places{{"device", "host"}};
constexpr Names<Scaling, 3> scalings{{"none", "current", "delayed"}};
constexpr std::array<Axis, static_cast<size_t>(Axis::count)> axes = {
    Axis::pp, Axis::dp, Axis::zero, Axis::cp, Axis::tp, Axis::ezero, Axis::ep, Axis::etp};

// Reads the keys of one object; finish() refuses those that nobody asked for.
class Reader {
 public:
  Reader(const Json& object, std::string path) : object_(object), path_(std::move(path)) {
    if (!object.is_object()) throw base::ConfigError(path_ + ": must be an object");
  }
  const Json& at(const char* key) {
    seen_.insert(key);
    const auto found = object_.find(key);
    if (found == object_.end()) throw base::ConfigError(fmt::format("{}: no key '{}'", path_, key));
    return *found;
  }
  template <typename T>
  T get(const char* key) {
    const Json& value = at(key);
    try {
      return value.get<T>();
    } catch (const Json::exception&) {
      throw base::ConfigError(
          fmt::format("{}: {} = {} has the wrong type", path_, key, value.dump()));
    }
  }
  Reader object(const char* key) { return {at(key), path_ + "." + key}; }
  base::DType dtype(const char* key) { return base::dtype_from_name(get<std::string>(key)); }
  void finish() const {
    for (const auto& [key, value] : object_.items()) {
      if (!seen_.contains(key)) {
        throw base::ConfigError(fmt::format("{}: unknown key '{}'", path_, key));
      }
    }
  }

 private:
  const Json& object_;
  std::string path_;
  std::set<std::string> seen_;
};

std::string dtype_name(base::DType dtype) { return std::string(base::name_of(dtype)); }

Json recipe_to_json(const Recipe& recipe) {
  Json gemm = Json::array();
  for (const Quant& q : recipe.gemm) {
    gemm.push_back({{"dtype", dtype_name(q.dtype)},
                    {"block_rows", q.block_rows},
                    {"block_cols", q.block_cols},
                    {"scaling", scalings.write(q.scaling)}});
  }
  return {{"name", recipe.name},
          {"storage", dtype_name(recipe.storage)},
          {"gemm", gemm},
          {"grad", dtype_name(recipe.grad)},
          {"amax_history", recipe.amax_history}};
}

Recipe recipe_from_json(Reader in) {
  Recipe recipe;
  recipe.name = in.get<std::string>("name");
  recipe.storage = in.dtype("storage");
  recipe.grad = in.dtype("grad");
  recipe.amax_history = in.get<int>("amax_history");
  const Json& gemm = in.at("gemm");
  if (!gemm.is_array() || gemm.size() != recipe.gemm.size()) {
    throw base::ConfigError(
        fmt::format("plan.recipe.gemm: must have {} entries, one per role", recipe.gemm.size()));
  }
  for (size_t i = 0; i < recipe.gemm.size(); ++i) {
    Reader role(gemm[i], fmt::format("plan.recipe.gemm[{}]", i));
    recipe.gemm[i] = {role.dtype("dtype"), role.get<int>("block_rows"), role.get<int>("block_cols"),
                      scalings.read(role.get<std::string>("scaling"), "scaling")};
    role.finish();
  }
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

Prediction prediction_from_json(Reader in) {
  Prediction p;
  for (const Json& entry : in.at("memory_bytes")) {
    Reader reader(entry, "plan.predicted.memory_bytes");
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

}  // namespace

Json to_json(const Plan& plan) {
  Json mesh = Json::object();
  for (const Axis axis : axes) mesh[std::string(name_of(axis))] = plan.mesh[axis];
  Json recompute = Json::array();
  for (const Recompute r : plan.recompute) recompute.push_back(recomputes.write(r));
  return {
      {"mesh", mesh},
      {"schedule", schedule::to_text(plan.schedule)},
      {"first_layer_of_stage", plan.first_layer_of_stage},
      {"zero",
       {{"params", plan.zero.params}, {"grads", plan.zero.grads}, {"optim", plan.zero.optim}}},
      {"sequence_parallel", plan.sequence_parallel},
      {"document_mask", plan.document_mask},
      {"context", contexts.write(plan.context)},
      {"inference", plan.inference},
      {"microbatch_sequences", plan.microbatch_sequences},
      {"seq_len", plan.seq_len},
      {"recompute", recompute},
      {"recipe", recipe_to_json(plan.recipe)},
      {"optimizer",
       {{"name", plan.optimizer.name},
        {"master", dtype_name(plan.optimizer.master)},
        {"first_moment", dtype_name(plan.optimizer.first_moment)},
        {"second_moment", dtype_name(plan.optimizer.second_moment)}}},
      {"logical_dp", plan.logical_dp},
      {"reduce", reduces.write(plan.reduce)},
      {"reduce_dtype", dtype_name(plan.reduce_dtype)},
      {"bucket_bytes", plan.bucket_bytes},
      {"prefetch", plan.prefetch},
      {"prefetch_after", plan.prefetch_after},
      {"keep_params", plan.keep_params},
      {"send_buffers", plan.send_buffers},
      {"head_chunk_rows", plan.head_chunk_rows},
      {"expert_capacity", plan.expert_capacity},
      {"optimizer_place", places.write(plan.optimizer_place)},
      {"stash_place", places.write(plan.stash_place)},
      {"predicted", prediction_to_json(plan.predicted)},
  };
}

Plan plan_from_json(const Json& json) {
  Reader in(json, "plan");
  Plan plan;
  Reader mesh = in.object("mesh");
  for (const Axis axis : axes) plan.mesh[axis] = mesh.get<int>(name_of(axis).data());
  mesh.finish();
  const auto schedule = schedule::from_text(in.get<std::string>("schedule"));
  if (!schedule) throw base::ConfigError("plan.schedule: " + schedule.reason());
  plan.schedule = schedule.value();
  plan.first_layer_of_stage = in.get<std::vector<int>>("first_layer_of_stage");
  Reader zero = in.object("zero");
  plan.zero = {zero.get<bool>("params"), zero.get<bool>("grads"), zero.get<bool>("optim")};
  zero.finish();
  plan.sequence_parallel = in.get<bool>("sequence_parallel");
  plan.document_mask = in.get<bool>("document_mask");
  plan.context = contexts.read(in.get<std::string>("context"), "context");
  plan.inference = in.get<bool>("inference");
  plan.microbatch_sequences = in.get<int64_t>("microbatch_sequences");
  plan.seq_len = in.get<int64_t>("seq_len");
  for (const auto& name : in.get<std::vector<std::string>>("recompute")) {
    plan.recompute.push_back(recomputes.read(name, "recompute"));
  }
  plan.recipe = recipe_from_json(in.object("recipe"));
  Reader optimizer = in.object("optimizer");
  plan.optimizer = {optimizer.get<std::string>("name"), optimizer.dtype("master"),
                    optimizer.dtype("first_moment"), optimizer.dtype("second_moment")};
  optimizer.finish();
  plan.logical_dp = in.get<int>("logical_dp");
  plan.reduce = reduces.read(in.get<std::string>("reduce"), "reduce");
  plan.reduce_dtype = in.dtype("reduce_dtype");
  plan.bucket_bytes = in.get<int64_t>("bucket_bytes");
  plan.prefetch = in.get<int>("prefetch");
  plan.prefetch_after = in.get<bool>("prefetch_after");
  plan.keep_params = in.get<bool>("keep_params");
  plan.send_buffers = in.get<int>("send_buffers");
  plan.head_chunk_rows = in.get<int64_t>("head_chunk_rows");
  plan.expert_capacity = in.get<double>("expert_capacity");
  plan.optimizer_place = places.read(in.get<std::string>("optimizer_place"), "optimizer_place");
  plan.stash_place = places.read(in.get<std::string>("stash_place"), "stash_place");
  plan.predicted = prediction_from_json(in.object("predicted"));
  in.finish();
  return plan;
}

}  // namespace trireme::spec
