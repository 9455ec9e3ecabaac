// SPDX-License-Identifier: Apache-2.0
// Config: everything a user decides about a run, as plain data. Section and key names are those of
// TorchTitan if the meaning is the same. schema.h defines the meaning and limits of each key;
// load() reads a file, applies overrides, and reports every problem at once; what was left open
// stays open. solved() fills it in for a number of ranks, as often as that changes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/text/json_fwd.h"
#include "schedule/schedule.h"
#include "spec/layout/layout.h"
#include "spec/model.h"

namespace trireme::config {

// Numbers by name, in the order in which they were written.
using NamedNumbers = std::vector<std::pair<std::string, double>>;

struct Job {
  std::string name;         // load() fills in the last part of dump_folder, or the model's name
  std::string dump_folder;  // load() fills in runs/<name>
  std::string description;
  std::string group;  // the experiment that the run belongs to
  std::string tags;   // with commas between them
};

struct Model {
  std::string name;
  int64_t vocab_size = 0;  // 0: that of the model
  int64_t max_seq = 0;     // 0: that of the model
};

struct Optimizer {
  std::string name = "AdamW";
  double lr = 3e-4;
  double beta1 = 0.9, beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  double momentum = 0.95;
  bool nesterov = true;
  int64_t ns_steps = 5;
  std::string master_dtype = "f32";
};

struct LrScheduler {
  int64_t warmup_steps = 0;
  int64_t total_steps = -1;  // solved() replaces -1 by training.steps
  double decay_ratio = 0.2;
  std::string decay_type = "cosine";
  double min_lr_factor = 0.1;
};

// An element of [[training.dataset]]: one data set of a mixture.
struct Dataset {
  std::string name;  // load() fills in the last part of path
  std::string path;
  std::string format = "auto";
  std::string dtype = "u16";
  double weight = 1;
  double max_epochs = 0;   // 0: unlimited
  int64_t max_tokens = 0;  // 0: unlimited
};

struct Training {
  std::string dataset_path;
  std::string dataset_format = "auto";
  std::string dataset_dtype = "u16";
  std::vector<Dataset> dataset;  // instead of the three keys above
  std::string tokenizer;
  std::string packing = "none";
  int64_t local_batch_size = 8;
  int64_t global_batch_size = -1;  // solved() replaces -1 by local_batch_size * logical_dp
  int64_t seq_len = -1;            // solved() replaces -1 by min(2048, the model's max_seq)
  double max_norm = 1;
  std::string clip = "fixed";
  double skip_norm_multiple = 20;
  int64_t skip_row = 3;
  int64_t steps = 1000;
  std::string grad_dtype = "f32";
  int64_t head_chunk_rows = 0;
  bool document_mask = false;
  std::string init_from;
};

// The recipe of number formats.
struct Precision {
  std::string recipe = "auto";  // also the key training.dtype
  int64_t bf16_first = 0, bf16_last = 0;
  std::vector<int64_t> bf16_blocks;
  // The loss scale of fp16.
  double loss_scale = 0;
  double loss_scale_initial = 65536;
  double loss_scale_min = 1;
  int64_t loss_scale_growth_interval = 2000;
  int64_t loss_scale_hysteresis = 2;
  std::string fallback = "warn";
  int64_t fallback_steps = 0;
};

struct ActivationCheckpoint {
  std::string mode = "none";
  int64_t blocks = -1;
  int64_t ffn_rows = 0;
};

// An element of [[validation.dataset]].
struct ValidationDataset {
  std::string name;  // load() fills in the last part of path
  std::string path;
  std::string format = "auto";
  std::string dtype = "u16";
};

struct Validation {
  bool enable = false;
  std::string dataset_path;
  std::vector<ValidationDataset> dataset;  // instead of dataset_path
  double split = 0.05;
  int64_t freq = 100;
  int64_t samples = 80;  // -1: all
  int64_t steps = 0;     // global batches, replaces samples if not 0; -1: all
};

struct Checkpoint {
  bool enable = true;
  int64_t interval = -1;
  double interval_seconds = 0;
  double mean_failure_seconds = 0;
  std::string folder = "checkpoint";
  int64_t keep_latest_k = 2;
  int64_t keep_every = -1;
  int64_t good_after_steps = 200;
  bool reread = false;
  int64_t export_interval = 0;
  std::string export_folder = "weights";
  std::string export_dtype = "f32";
  int64_t max_shard_bytes = 5'000'000'000;
};

struct Metrics {
  int64_t log_freq = 10;
  int64_t ranks_freq = 20;
  int64_t numerics_freq = 10;
  std::string hardware = "auto";
  bool enable_tensorboard = true;
  std::string save_tb_folder = "tb";
  std::string command;
};

struct Alerts {
  std::string command;
  std::string webhook;
  double max_unsaved_seconds = 7200;
  int64_t slow_logs = 10;
  int64_t skipped_steps = 10;
};

// solved() replaces -1, logical_dp = 0 and reduce = "auto".
struct Parallelism {
  int64_t data_parallel_replicate_degree = 1;
  int64_t data_parallel_shard_degree = -1;
  int64_t tensor_parallel_degree = 1;
  int64_t pipeline_parallel_degree = 1;
  std::string pipeline_parallel_schedule = "1F1B";
  std::string pipeline_parallel_schedule_file;
  int64_t pipeline_parallel_chunks = 0;
  std::vector<int64_t> pipeline_parallel_first_layers;
  int64_t pipeline_parallel_send_buffers = 2;
  int64_t context_parallel_degree = 1;
  std::string context_parallel_kind = "gather";
  std::string context_parallel_slices = "zigzag";
  int64_t context_parallel_ulysses_degree = 0;
  int64_t expert_parallel_degree = 1;
  int64_t expert_tensor_parallel_degree = 1;
  int64_t zero_stage = -1;
  std::string fsdp_reshard_after_forward = "default";
  bool sequence_parallel = false;
  int64_t logical_dp = 0;
  std::string reduce = "auto";
  std::string reduce_dtype = "f32";
  int64_t prefetch = 1;
  bool prefetch_after = false;
};

// Values of the model file are overridden by those that are not -1 or "model".
struct Moe {
  double aux_loss = -1;
  std::string aux_scope = "model";
  double z_loss = -1;
  double bias_rate = -1;
  double row_budget = 1.5;
  std::string overflow = "strict";
  double capacity = 0;  // 0: no pair is dropped
};

struct Comm {
  std::string backend = "auto";
  double deadline_s = 600;
  bool fixed_order = true;
  bool capture = false;
  bool debug = false;
};

struct Elastic {
  double detect_s = 5;
  std::string peer = "auto";
  int64_t peer_interval = 0;
  double peer_cost = 0.01;
  int64_t peer_buffers = 2;
  std::string domains;         // empty: each node is one
  std::string notice_file;     // empty: none
  std::string notice_command;  // empty: none
  double grace_s = 0;          // 0: unknown
};

struct System {
  std::string device = "auto";
  int64_t gpu = 0;
  std::string determinism = "l1";
  std::string cache_folder;
  int64_t threads = 0;
  double peak_tflops = 0;
  std::string machine;
  double price_per_hour = 0;
};

struct Debug {
  int64_t seed = 0;
};

// An element of [[phase]]: what changes from a step or a number of tokens on. A field that is not
// given (-1, no weights) stays as in the phase before; config/lists/phases.h resolves that.
struct Phase {
  std::string name;        // load() fills in "phase 2", ...
  int64_t from_step = -1;  // first step, counted from 1
  int64_t from_tokens = -1;
  int64_t seq_len = -1;
  int64_t global_batch_size = -1;
  int64_t local_batch_size = -1;
  double lr = -1;
  double lr_factor = -1;
  NamedNumbers weights;  // by data set; one that is not named has none
};

// Where a configuration and its keys come from, for messages.
struct Origin {
  std::string title = "configuration";        // the name of the file
  std::map<std::string, std::string> places;  // of given keys by path, the last one of each
};

struct Config {
  Job job;
  Model model;
  Optimizer optimizer;
  LrScheduler lr_scheduler;
  Training training;
  Precision precision;
  ActivationCheckpoint activation_checkpoint;
  Validation validation;
  Checkpoint checkpoint;
  Metrics metrics;
  Alerts alerts;
  Parallelism parallelism;
  Moe moe;
  Comm comm;
  Elastic elastic;
  System system;
  Debug debug;
  std::vector<Phase> phase;

  // The model that `model` names, with its overrides applied. Not a key.
  spec::ModelDims dims;
  // The schedule of pipeline_parallel_schedule_file, if one is named. Not a key.
  std::optional<schedule::Schedule> custom_schedule;
  // The given values that solved() changed, one human-readable line each. Not a key.
  std::vector<std::string> notes;
  Origin origin;  // not a key
};

// Returns the sequences of one validation, the same for every layout and micro-batch; -1: all
// held-out data. REQUIRES: training.global_batch_size is solved.
int64_t validation_samples(const Config&);

// Compares the resolved forms.
bool operator==(const Config&, const Config&);

// The order of sums of the run that is resumed. solved() gives open keys these values if the new
// layout allows it, so that the run continues bit-identically.
struct SavedSums {
  int logical_dp = 0;
  spec::ReduceWhen reduce = spec::ReduceWhen::once;  // never automatic
  int64_t global_batch_size = 0;  // that the run begins with; phases may have other ones
};

struct LoadOptions {
  // "--section.key=value" or "section.key=value"; "--section.key" "value" as two elements; and
  // "--section.key" alone if the key is a boolean. Later ones win.
  std::vector<std::string> overrides;
  // Folders that are searched for <model.name>.toml, after `models` beside the configuration file.
  std::vector<std::filesystem::path> model_folders;
  // Ranks that solved() is tried for, 0 as there; its problems are reported with the others.
  int world = 0;
};

// The text of a configuration.
struct ConfigText {
  std::string name;              // in messages; empty: no configuration, defaults apply
  std::filesystem::path folder;  // searched for its paths, after the current folder
  std::string text;
};

// Reads a file, a pipe or, for "-" and /dev/stdin, standard input, whose name is "<stdin>". Only a
// file can be read more than once. Throws IoError.
ConfigText read_config_text(const std::filesystem::path& path);
// Does the path name standard input, a pipe or a terminal, which only one process can read, once?
bool is_read_once(const std::filesystem::path& path);

// Accepts TOML or a resolved JSON object (distinguished by content). The result has the keys as
// they were asked for: open ones stay -1, 0 or "auto", but names and folders, `dims` and the custom
// schedule are filled in. Throws IoError if a file cannot be read, otherwise one ConfigError with a
// line for every unknown section or key, wrong type and broken rule.
Config load(const ConfigText& given, const LoadOptions& options);
// The same for a file; an empty path means defaults only.
Config load(const std::filesystem::path& file, const LoadOptions& options);

// Returns a loaded configuration without open keys, for so many ranks, which must be the product of
// the degrees; 0: that product. Only system.device and precision.recipe, which depend on the
// machine, may still be "auto". A pure function; what is already solved does not change. Throws one
// ConfigError with a line for every broken rule.
Config solved(const Config& asked, int world, const std::optional<SavedSums>& saved = {});

// Replaces precision.recipe = "auto" by bf16 on a GPU and by fp32 on the CPU; solved() does not
// know the device. Throws ConfigError if another key requires the other one.
Config settle_dtype(Config, bool on_gpu);

// Returns every key and the model's dims. load() reads what solved() returned back to an equal
// Config, also on a machine without model files.
base::Json to_json(const Config&);

}  // namespace trireme::config
