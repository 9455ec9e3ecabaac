// SPDX-License-Identifier: Apache-2.0
#include "plan/validate/published.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <sstream>

#include "base/error.h"
#include "base/text/json.h"
#include "plan/price/price.h"
#include "plan/validate/published_row.h"
#include "plan/validate/published_words.h"
#include "spec/json_reader.h"

namespace trireme::plan {
namespace {

using base::Json;

constexpr double max_layers = 1e5, max_gpus = 1e7;

// Sets the experts of a row, if it has some.
void take_experts(const Row& row, spec::ModelDims& dims) {
  const Json* moe = row.find("model", "moe");
  if (moe == nullptr) return;
  if (!moe->is_object()) row.bad("model.moe is not an object");
  const auto count = [&](const char* key) -> int64_t {
    const auto found = moe->find(key);
    if (found == moe->end() || !found->is_number()) return 0;
    const auto value = found->get<double>();
    if (value < 0 || value > 1e9) {
      throw Unpriced{fmt::format("model.moe.{} = {} is not from 0 to 1e9", key, value)};
    }
    return static_cast<int64_t>(value);
  };
  spec::MoeSpec spec;
  spec.router.experts = count("experts");
  spec.router.chosen = count("top_k");
  spec.ffn = count("moe_ffn");
  spec.shared_ffn = count("shared") * spec.ffn;
  if (spec.router.experts < 1 || spec.router.chosen < 1 || spec.ffn < 1) {
    throw Unpriced{"model.moe needs experts, top_k and moe_ffn"};
  }
  if (dims.family != spec::Family::llama) {
    throw Unpriced{"model.moe without model.gated: only experts with a gate are modelled"};
  }
  dims.moe = spec;
  dims.dense_layers = static_cast<int>(count("dense_layers"));
}

Job job_of(const Row& row, std::vector<std::string>& assumed) {
  if (!row.text("model", "attention").empty()) {
    throw Unpriced{
        fmt::format("model.attention = {} is not modelled", row.text("model", "attention"))};
  }
  const bool gated = row.flag("model", "gated").value_or(false);
  spec::ModelDims dims;
  dims.name = row.text("model", "name");
  dims.family = gated ? spec::Family::llama : spec::Family::gpt2;
  dims.layers = static_cast<int>(row.whole("model", "layers", max_layers));
  dims.hidden = row.whole("model", "hidden");
  dims.heads = row.whole("model", "heads");
  dims.kv_heads = row.whole_or("model", "kv_heads", 0);
  if (!gated) dims.kv_heads = 0;
  dims.head_dim = row.whole_or("model", "head_dim", 0);
  if (!gated) dims.head_dim = 0;
  dims.vocab = row.whole("model", "vocab");
  dims.max_seq = row.whole("model", "seq_len");
  dims.tied_head = !gated || row.flag("model", "tied_embeddings").value_or(false);
  Job job;
  take_experts(row, dims);
  const bool has_dense = !dims.moe || dims.dense_layers > 0;
  dims.ffn = has_dense ? row.whole("model", "ffn") : 0;
  try {
    job.model = spec::make_model(dims);
  } catch (const base::ConfigError& error) {
    throw Unpriced{error.what()};
  }
  job.seq_len = dims.max_seq;
  job.global_batch = row.whole("", "global_batch");
  if (row.find("model", "gated") == nullptr) assumed.emplace_back("a feed-forward without a gate");
  return job;
}

spec::Recompute recompute_of(const Row& row, std::vector<std::string>& assumed) {
  const auto stated = stated_recompute(row.text("", "recompute"));
  if (!stated) assumed.emplace_back("no recompute");
  return stated.value_or(spec::Recompute::none);
}

Precision precision_of(const Row& row, std::vector<std::string>& assumed) {
  const auto stated = stated_precision(row.text("", "precision"));
  if (!stated) assumed.emplace_back("bf16");
  return stated.value_or(Precision::bf16);
}

// Reads a number, or text such as "FSDP(ZeRO-3)".
int zero_stage(const Row& row) {
  const Json* value = row.find("parallel", "zero");
  if (value == nullptr) return 1;
  if (value->is_string()) {
    const std::string text = lower(value->get<std::string>());
    const size_t at = text.find("zero-");
    const std::string stage = at != std::string::npos ? text.substr(at + 5, 1) : text;
    if (stage.size() == 1 && stage[0] >= '0' && stage[0] <= '3') return stage[0] - '0';
    if (has(text, "fsdp")) return 3;
    throw Unpriced{fmt::format("parallel.zero = {} is not a stage from 0 to 3", text)};
  }
  const double stage = *row.number("parallel", "zero");
  if (stage < 0 || stage > 3 || stage != std::floor(stage)) {
    throw Unpriced{fmt::format("parallel.zero = {} is not a stage from 0 to 3", stage)};
  }
  return static_cast<int>(stage);
}

// Programs pass keys and values round in a ring unless the row states another kind.
spec::ContextKind context_kind(const Row& row) {
  const std::string stated = row.text("parallel", "cp_kind");
  if (stated.empty()) return spec::ContextKind::ring;
  const auto kind = spec::context_kind_from_name(stated);
  if (!kind) {
    throw Unpriced{fmt::format("parallel.cp_kind = {} is not one of {}", stated,
                               spec::all_names<spec::ContextKind>())};
  }
  return *kind;
}

Layout layout_of(const Row& row, const Job& job, std::vector<std::string>& assumed) {
  Layout l;
  l.tp = row.degree("tp");
  l.pp = row.degree("pp");
  l.cp = row.degree_or("cp", 1);
  l.ep = row.degree_or("ep", 1);
  if (l.cp > 1) l.context_kind = context_kind(row);
  const int64_t gpus = row.whole("cluster", "gpus", max_gpus);
  const int64_t rest = int64_t{l.tp} * l.pp * l.cp;
  if (gpus % rest != 0) {
    throw Unpriced{fmt::format("{} GPUs do not divide by tp x pp x cp = {}", gpus, rest)};
  }
  spec::set_data_ranks(l, static_cast<int>(gpus / rest), zero_stage(row));
  const std::string schedule = lower(row.text("", "schedule"));
  l.chunks = row.degree_or("vpp", 1);
  if (row.find("parallel", "vpp") == nullptr && l.pp > 1) {
    assumed.emplace_back("one chunk per rank");
  }
  if (l.pp == 1) l.chunks = 1;
  if (l.chunks > 1) l.schedule = Kind::interleaved;
  if (l.pp > 1) check_stated_schedule(schedule);
  if (has(schedule, "gpipe")) l.schedule = Kind::gpipe;
  if (has(schedule, "zb-1p")) l.schedule = Kind::zb_h1;
  if (has(schedule, "zb-2p")) l.schedule = Kind::zb_h2;
  if (has(schedule, "zb-v") || has(schedule, "zbv")) l.schedule = Kind::zb_v;
  if (l.pp > 1 && schedule::named(l.schedule).chunks > 0)
    l.chunks = schedule::named(l.schedule).chunks;
  l.micro_batch = row.whole("", "micro_batch");
  l.recompute = recompute_of(row, assumed);
  l.sequence_parallel = row.flag("parallel", "sp").value_or(l.tp > 1) && l.tp > 1;
  if (has_experts(job) && l.tp > 1 && !l.sequence_parallel) {
    l.sequence_parallel = true;
    assumed.emplace_back("sequence parallelism, because ranks along tp route different tokens");
  }
  l.precision = precision_of(row, assumed);
  // The planner models interleaving only in complete groups of micro-batches.
  if (l.schedule == Kind::interleaved && micro_batches(job, l) % l.pp != 0) {
    l.schedule = Kind::one_f_one_b;
    l.chunks = 1;
    assumed.emplace_back("1f1b, because the micro-batches do not divide by pp");
  }
  return l;
}

std::string machine_name(const std::string& gpu) {
  const std::string text = lower(gpu);
  constexpr std::array<std::pair<std::string_view, std::string_view>, 13> names = {
      {{"gb300", "gb300"},
       {"gb200", "gb200"},
       {"b300", "b300"},
       {"b200", "b200"},
       {"h200", "h200"},
       {"h100-96gb-500w", "h100-500w"},
       {"h100", "h100"},
       {"h800", "h100"},
       {"a100-40gb-pcie", "a100-pcie"},
       {"a800-80gb-pcie", "a100-pcie"},
       {"a100-40gb", "a100-40gb"},
       {"a100", "a100-80gb"},
       {"a800", "a100-80gb"}}};
  for (const auto& [part, name] : names) {
    if (has(text, part)) return std::string(name);
  }
  throw Unpriced{fmt::format("no machine file describes the GPU {}", gpu)};
}

spec::Machine machine_of(const Row& row, const FindMachine& find) {
  const std::string gpu = row.text("cluster", "gpu");
  if (gpu.empty()) throw Unpriced{"cluster.gpu is not stated"};
  spec::Machine machine = find(machine_name(gpu));
  // H800 and A800 are the same chips with fewer links.
  const std::string chip = lower(gpu);
  if (has(chip, "h800") || has(chip, "a800")) {
    machine.domain.link.bytes_per_second = std::min(machine.domain.link.bytes_per_second, 200e9);
  }
  const int64_t node = row.whole_or("cluster", "gpus_per_node", 8, max_gpus);
  // The row's node size is the domain, except on machines whose domain spans several nodes.
  if (machine.domain.size <= 8) machine.domain.size = node;
  const auto rate = network_rate(row.text("cluster", "interconnect"), static_cast<double>(node));
  if (rate) machine.network.link.bytes_per_second = *rate;
  return machine;
}

// Returns the program that the row states, or that its source is known to have used.
std::string stack_name(const Row& row) {
  if (std::string stated = row.text("", "stack"); !stated.empty()) return stated;
  const std::string source = lower(row.text("", "source")), id = lower(row.text("", "id"));
  const std::string schedule = lower(row.text("", "schedule"));
  const char* name = "megatron-core";
  if (has(schedule, "deepspeed")) {
    name = "deepspeed-2021";
  } else if (has(source, "zero bubble")) {
    name = "zero-bubble";
  } else if (has(source, "korthikanti")) {
    name = "megatron-2022";
  } else if (has(source, "vtrain") || has(source, "sc21")) {
    name = "megatron-2021";
  } else if (has(source, "torchtitan")) {
    name = "torchtitan-eager";
  } else if (has(schedule, "fsdp") || has(source, "llm-foundry") || has(source, "automodel") ||
             id.starts_with("pytorch")) {
    name = "fsdp";
  } else if (has(source, "llm.c")) {
    name = "llm.c";
  }
  return name;
}

Stack stack_of(const Row& row, const FindStack& find) {
  try {
    return find(stack_name(row));
  } catch (const base::ConfigError& error) {
    row.bad(fmt::format("stack: {}", error.what()));
  }
}

// Returns model FLOPs as papers count them: 6 per matrix parameter and token, plus attention
// without a causal mask.
double counted_flops(const Job& job) {
  double per_token = 0;
  for (const spec::LayerSpec& layer : job.model.layers) {
    if (const auto* block = std::get_if<spec::BlockSpec>(&layer)) {
      const double width = static_cast<double>(block->width);
      const double inner = static_cast<double>(block->heads * block->head_dim);
      int64_t feed_forward = block->up_width() + block->ffn;
      if (const auto& moe = block->moe) {
        feed_forward = moe->router.experts + 3 * (moe->router.chosen * moe->ffn + moe->shared_ffn);
      }
      per_token +=
          6 * width *
          (static_cast<double>(block->qkv_width()) + inner + static_cast<double>(feed_forward));
      per_token += 12 * inner * static_cast<double>(job.seq_len);
    } else if (const auto* head = std::get_if<spec::HeadSpec>(&layer)) {
      per_token += 6 * static_cast<double>(head->vocab) * static_cast<double>(head->width);
    }
  }
  return per_token * static_cast<double>(job.tokens());
}

// Returns the kind that the row states, or that its source is known to have measured.
MemoryKind memory_kind(const Row& row) {
  const std::string stated = row.text("measured", "mem_kind");
  constexpr std::array<std::string_view, static_cast<size_t>(MemoryKind::count)> names = {
      "allocated", "reserved", "device"};
  if (!stated.empty()) {
    const auto* found = std::ranges::find(names, stated);
    if (found == names.end()) {
      row.bad(fmt::format("measured.mem_kind = {}: one of {}", stated, fmt::join(names, ", ")));
    }
    return static_cast<MemoryKind>(found - names.begin());
  }
  const std::string source = lower(row.text("", "source"));
  return has(source, "simumax") || has(source, "zero bubble") ? MemoryKind::allocated
                                                              : MemoryKind::device;
}

double measured_seconds(const Row& row, const PublishedRun& run) {
  // A zero means that the value was not measured.
  const auto positive = [&row](const char* section, const char* key) -> std::optional<double> {
    const auto value = row.number(section, key);
    return value && *value > 0 ? value : std::nullopt;
  };
  for (const char* section : {"measured", "derived"}) {
    if (const auto seconds = positive(section, "iter_s")) return *seconds;
    if (const auto rate = positive(section, "tokens_per_s_per_gpu")) {
      return static_cast<double>(run.job.tokens()) /
             (*rate * static_cast<double>(run.layout.ranks()));
    }
  }
  if (const auto mfu = positive("measured", "mfu")) {
    if (*mfu > 1) throw Unpriced{fmt::format("measured.mfu = {} is above 1", *mfu)};
    return counted_flops(run.job) /
           (*mfu * run.machine.processor.bf16_flops * static_cast<double>(run.layout.ranks()));
  }
  return 0;
}

}  // namespace

PublishedRun published_run(const Json& json, const Finders& find, const std::string& where) {
  const Row row(json, where);
  PublishedRun run;
  run.id = row.text("", "id");
  run.source = row.text("", "source");
  if (run.id.empty()) row.bad("the run has no id");
  try {
    run.job = job_of(row, run.assumed);
    run.layout = layout_of(row, run.job, run.assumed);
    run.machine = machine_of(row, find.machine);
    run.stack = stack_of(row, find.stack);
    if (std::string rule = broken_rule(run.job, run.layout); !rule.empty()) throw Unpriced{rule};
    run.seconds = measured_seconds(row, run);
    run.bytes = 1e9 * row.number("measured", "mem_gb").value_or(0);
    run.memory_kind = memory_kind(row);
    if (run.seconds <= 0 && run.bytes <= 0) throw Unpriced{"neither time nor memory is stated"};
  } catch (const Unpriced& unpriced) {
    run.reason = unpriced.reason;
  }
  return run;
}

std::vector<PublishedRun> published_runs(const std::string& text, const Finders& find,
                                         const std::string& file) {
  std::vector<PublishedRun> runs;
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string where = fmt::format("{}:{}", file, number);
    const Json row = Json::parse(line, nullptr, false);
    if (row.is_discarded()) throw base::ConfigError(fmt::format("{}: not JSON", where));
    runs.push_back(published_run(row, find, where));
  }
  if (runs.empty()) throw base::ConfigError(fmt::format("{}: contains no run", file));
  return runs;
}

}  // namespace trireme::plan
