// SPDX-License-Identifier: Apache-2.0
#include "config/schema.h"

#include <fmt/format.h>

#include <cmath>

#include "base/text/json.h"
#include "config/key_list.h"
#include "schedule/catalogue.h"
#include "spec/layout/layout.h"

namespace trireme::config {
namespace {

Range at_least(int64_t low) { return {.low = static_cast<double>(low), .high = count_limit}; }
Range at_least_or(int64_t low, int64_t other) {
  Range range = at_least(low);
  range.or_value = other;
  return range;
}
Range between(double low, double high) { return {.low = low, .high = high}; }
Range positive() { return {.low = 0, .high = count_limit, .low_excluded = true}; }

std::string number_text(double value) {
  constexpr double exact = 9e15;
  if (std::abs(value) < exact && value == std::trunc(value)) {
    return fmt::format("{}", static_cast<int64_t>(value));
  }
  return fmt::format("{}", value);
}

}  // namespace

bool Range::contains(double value) const {
  if (or_value && value == static_cast<double>(*or_value)) return true;
  return (low_excluded ? value > low : value >= low) &&
         (high_excluded ? value < high : value <= high);
}

std::string Range::text() const {
  if (!std::isfinite(low)) return "";
  const std::string other = or_value ? fmt::format("{} or ", *or_value) : "";
  if (names_high() && !low_excluded && !high_excluded) {
    return fmt::format("{}from {} to {}", other, number_text(low), number_text(high));
  }
  std::string text =
      fmt::format("{}{} {}", other, low_excluded ? "above" : "at least", number_text(low));
  if (names_high()) {
    text += fmt::format(", {} {}", high_excluded ? "below" : "at most", number_text(high));
  }
  return text;
}

std::string Key::path() const {
  return section.empty() ? std::string(name) : fmt::format("{}.{}", section, name);
}

std::vector<Key> keys_of(Config& c) {
  const Range beta{.low = 0, .high = 1, .high_excluded = true};
  const Range share{.low = 0, .high = 1, .low_excluded = true};
  const Range degree{.low = 1, .high = spec::max_degree, .or_value = -1};
  static const std::vector<std::string_view> recipes = {
      "auto", "fp32", "bf16", "fp16", "fp8-tensor", "fp8-block", "fp8-delayed"};
  KeyList k;
  k.section("job");
  k.text("name", c.job.name,
         "name of the run, at most 128 bytes without slashes; empty: the last part of dump_folder, "
         "or the model's name");
  k.text("dump_folder", c.job.dump_folder,
         "folder for all files of the run; empty: runs/ and the name");
  k.text("description", c.job.description, "free text, stored with the run");
  k.text("group", c.job.group,
         "experiment that the run belongs to: its runs are added up, and grouped in wandb and "
         "mlflow");
  k.text("tags", c.job.tags,
         "words with commas between them, as in \"baseline, lr-sweep\", by which lists of runs are "
         "searched");

  k.section("model");
  k.text(
      "name", c.model.name,
      "a file of configs/models without .toml, a path to a .toml file, or a path to a Hugging "
      "Face config.json or the folder that contains one; empty: the model of training.init_from");
  k.number("vocab_size", c.model.vocab_size, {.low = 2, .high = 1 << 30, .or_value = 0},
           "number of token ids; 0: that of the model");
  k.number("max_seq", c.model.max_seq, {.low = 1, .high = 1 << 30, .or_value = 0},
           "longest sequence of the model; 0: that of the model");

  k.section("optimizer");
  k.choice(
      "name", c.optimizer.name, {"AdamW", "Muon"},
      "the optimizer. Muon updates the matrices of blocks, but not those of experts; AdamW updates "
      "everything else; learning rate and weight decay are those of AdamW for both");
  k.number("lr", c.optimizer.lr, {.low = 0, .high = 1000, .low_excluded = true},
           "peak learning rate");
  k.number("beta1", c.optimizer.beta1, beta, "decay of the first moment");
  k.number("beta2", c.optimizer.beta2, beta, "decay of the second moment");
  k.number("eps", c.optimizer.eps, share, "added to the denominator");
  k.number("weight_decay", c.optimizer.weight_decay, between(0, 1000),
           "decoupled decay of matrices; norms and biases have none");
  k.number("momentum", c.optimizer.momentum, beta, "decay of the momentum; Muon only");
  k.boolean("nesterov", c.optimizer.nesterov, "look ahead by one step of momentum; Muon only");
  k.number("ns_steps", c.optimizer.ns_steps, between(1, 20),
           "Newton-Schulz iterations of an update; Muon only");
  k.choice("master_dtype", c.optimizer.master_dtype, {"f32", "u16"},
           "master weights of a bf16 run. f32: an fp32 copy; u16: only the low 16 bits of the fp32 "
           "master (the bf16 weight is the high part), which saves 2 bytes per parameter. Masters "
           "are the same fp32 values, but a weight halfway between two bf16 (one of 65,536) is "
           "rounded away from zero, not to even");

  k.section("lr_scheduler");
  k.number("warmup_steps", c.lr_scheduler.warmup_steps, at_least(0),
           "steps of linear warm-up to lr; shortened if training.steps is not above it");
  k.number("total_steps", c.lr_scheduler.total_steps, at_least_or(1, -1),
           "step at which the decay ends; -1: training.steps");
  k.number("decay_ratio", c.lr_scheduler.decay_ratio, share,
           "fraction of total_steps in which the rate decays; wsd only");
  k.choice("decay_type", c.lr_scheduler.decay_type, {"constant", "linear", "cosine", "wsd"},
           "shape of the decay; wsd: warm-up, stable, then linear decay");
  k.number("min_lr_factor", c.lr_scheduler.min_lr_factor, between(0, 1),
           "final learning rate as a fraction of lr");

  k.section("training");
  k.text("dataset_path", c.training.dataset_path, "token file, or prefix of a .bin/.idx pair");
  k.choice("dataset_format", c.training.dataset_format,
           {"auto", "megatron", "llmc", "nanogpt", "text"},
           "format of the data; auto: detected from its first bytes");
  k.choice("dataset_dtype", c.training.dataset_dtype, {"u16", "u32"},
           "token type of files without a header");
  k.text("tokenizer", c.training.tokenizer,
         "tokenizer of the data: a tokenizer.json, a SentencePiece .model, or a folder that "
         "contains one; it is saved with checkpoints and weights. Empty: the one that `trireme "
         "data build` has put beside the data, if there is one");
  k.choice("packing", c.training.packing, {"none", "best_fit"},
           "none: samples are cut from the stream of tokens; best_fit: whole documents are packed "
           "into samples, the rest is padding (docs/data.md)");
  k.number("local_batch_size", c.training.local_batch_size, {.low = 1, .high = 1 << 20},
           "sequences in one micro-batch");
  k.number("global_batch_size", c.training.global_batch_size,
           {.low = 1, .high = 1 << 24, .or_value = -1},
           "sequences in one step, a multiple of local_batch_size x logical_dp; -1: that product");
  k.number("seq_len", c.training.seq_len, {.low = 1, .high = 1 << 24, .or_value = -1},
           "tokens in a sequence, at most the model's max_seq; -1: max_seq, but at most 2048");
  k.number("max_norm", c.training.max_norm, positive(),
           "limit on the gradient norm, for clip = \"fixed\"");
  k.choice("clip", c.training.clip, {"fixed", "adaptive", "none"},
           "gradient clipping: at max_norm, by the running norm, or none");
  k.number("skip_norm_multiple", c.training.skip_norm_multiple, at_least_or(1, 0),
           "a step whose norm is this multiple of the running norm is skipped; 0: never");
  k.number("skip_row", c.training.skip_row, {.low = 0, .high = 1 << 20},
           "limit on consecutive skipped steps: after that many, the next step with a finite norm "
           "is applied, clipped; 0: no limit");
  k.number("steps", c.training.steps, at_least(1), "optimizer steps");
  k.choice("dtype", c.precision.recipe, recipes, "another name of precision.recipe");
  k.choice("grad_dtype", c.training.grad_dtype, {"f32", "bf16"},
           "format in which gradients are accumulated");
  k.number("head_chunk_rows", c.training.head_chunk_rows, {.low = 0, .high = 1 << 30},
           "rows of logits that exist at one time; 0: chosen for the device");
  k.boolean("document_mask", c.training.document_mask,
            "attention does not cross document boundaries");
  k.text("init_from", c.training.init_from,
         "folder of Hugging Face weights to start from; empty: random weights");

  k.section("precision");
  k.choice(
      "recipe", c.precision.recipe, recipes,
      "number formats of parameters, activations and products; runs below fp32 have fp32 master "
      "weights. fp16: with a loss scale; fp8-tensor (or fp8): products of blocks in 8 bits with "
      "one scale a tensor; fp8-block: a scale for 128 values of a row and 128 x 128 of a weight; "
      "fp8-delayed: scales of the steps before; everything else of these three is in bf16. auto: "
      "bf16 on a GPU, fp32 on the CPU. run.json contains the resolved value");
  k.number("bf16_first", c.precision.bf16_first, {.low = 0, .high = 1 << 20},
           "first blocks whose products stay in bf16 under a recipe of fp8");
  k.number("bf16_last", c.precision.bf16_last, {.low = 0, .high = 1 << 20},
           "last blocks whose products stay in bf16 under a recipe of fp8");
  k.numbers("bf16_blocks", c.precision.bf16_blocks, {.low = 0, .high = 1 << 20},
            "further blocks whose products stay in bf16 under a recipe of fp8, counted from 0, in "
            "ascending order");
  const Range scale{.low = 0.001, .high = 0x1p32};
  k.number(
      "loss_scale", c.precision.loss_scale, {.low = 0.001, .high = 0x1p32, .or_value = 0},
      "recipe fp16: the loss scale, which never changes; 0: it falls by half after steps whose "
      "gradient is not finite, which are skipped, and doubles after good ones");
  k.number("loss_scale_initial", c.precision.loss_scale_initial, scale,
           "the first loss scale, if loss_scale is 0");
  k.number("loss_scale_min", c.precision.loss_scale_min, scale, "it does not fall below this");
  k.number("loss_scale_growth_interval", c.precision.loss_scale_growth_interval, at_least(1),
           "good steps after which the loss scale doubles");
  k.number("loss_scale_hysteresis", c.precision.loss_scale_hysteresis, {.low = 1, .high = 1000},
           "steps that are not finite until the loss scale falls; from then on it falls after "
           "each, until it has doubled again");
  k.choice("fallback", c.precision.fallback, {"off", "warn", "bf16"},
           "what follows if the 8-bit numbers of a block drift: nothing, a warning, or a warning "
           "and bf16 for the block's products from the next step on; docs/precision.md");
  k.number("fallback_steps", c.precision.fallback_steps, at_least(0),
           "steps after which a block that fell back to bf16 returns to 8 bits, twice as many each "
           "time it falls back again; 0: it stays in bf16");

  k.section("activation_checkpoint");
  k.choice("mode", c.activation_checkpoint.mode, {"none", "selective", "full"},
           "what a block recomputes in the backward pass");
  k.number("blocks", c.activation_checkpoint.blocks, {.low = 0, .high = 1 << 20, .or_value = -1},
           "number of blocks, from the first, that recompute; -1: all");
  k.number(
      "ffn_rows", c.activation_checkpoint.ffn_rows, {.low = 0, .high = 1 << 30},
      "rows that the feed-forward of every block computes at one time; the backward recomputes "
      "them tile by tile, so that its inner tensors exist for one tile only. With sequence "
      "parallelism at least the tensor parallel degree; 0: all rows, without tiles");

  k.section("validation");
  k.boolean("enable", c.validation.enable, "measure the loss on held-out data");
  k.text("dataset_path", c.validation.dataset_path,
         "held-out data; empty: a part of the training data");
  k.number("split", c.validation.split, between(0, 0.5),
           "fraction of the training data that is held out if dataset_path is empty");
  k.number("freq", c.validation.freq, at_least(1), "steps between validations");
  k.number("samples", c.validation.samples, at_least_or(1, -1),
           "sequences per validation, on any layout; -1: all held-out data");
  k.number("steps", c.validation.steps, {.low = -1, .high = 1 << 30},
           "global batches per validation, instead of samples; -1: all held-out data; 0: use "
           "samples");

  k.section("checkpoint");
  k.boolean("enable", c.checkpoint.enable, "write checkpoints, and weights at the end");
  k.number(
      "interval", c.checkpoint.interval, at_least_or(0, -1),
      "steps between checkpoints of the whole state, from which --resume continues; 0: no periodic "
      "ones; -1: by time, after 60 s or 100 times the measured cost of a save, whichever is "
      "longer, at most an hour. The last step and a stop are always saved");
  k.number("interval_seconds", c.checkpoint.interval_seconds, {.low = 0, .high = 1e9},
           "seconds after which a checkpoint is also due; 0: only steps count");
  k.number("mean_failure_seconds", c.checkpoint.mean_failure_seconds, {.low = 0, .high = 1e9},
           "mean time between failures of the whole job: a checkpoint is due after sqrt(2 C T) "
           "seconds, C being the measured cost of a save; 0: unknown");
  k.text("folder", c.checkpoint.folder, "folder of checkpoints in job.dump_folder");
  k.number("keep_latest_k", c.checkpoint.keep_latest_k, at_least(0),
           "number of checkpoints, and of exported weights of steps, to keep; 0: all");
  k.number(
      "keep_every", c.checkpoint.keep_every, at_least_or(0, -1),
      "older checkpoints that are kept besides: the first of every so many steps; 0: none; -1: "
      "one for every power of two of age, and one between a quarter and half of the run's");
  k.number("good_after_steps", c.checkpoint.good_after_steps, at_least(1),
           "a checkpoint is marked good after so many later steps without an alarm");
  k.boolean("reread", c.checkpoint.reread, "read each checkpoint back after writing it");
  k.number("export_interval", c.checkpoint.export_interval, at_least(0),
           "steps between exports of weights in Hugging Face form; 0: only at the end");
  k.text("export_folder", c.checkpoint.export_folder,
         "folder of weights in job.dump_folder; empty: no weights are exported");
  k.choice("export_dtype", c.checkpoint.export_dtype, {"f32", "bf16"}, "format of saved weights");
  k.number("max_shard_bytes", c.checkpoint.max_shard_bytes, at_least(1 << 20),
           "larger weights are split into several files");

  k.section("metrics");
  k.number("log_freq", c.metrics.log_freq, at_least(1), "steps between log lines");
  k.number(
      "ranks_freq", c.metrics.ranks_freq, at_least(1),
      "steps between records of ranks.bin: times, waits and memory of every rank; on a GPU the "
      "waits of one step in so many are measured");
  k.number("numerics_freq", c.metrics.numerics_freq, at_least(0),
           "steps between records of numerics.bin, of runs with products in 8 bits: largest "
           "magnitudes, values flushed to zero and saturated, signal-to-noise ratio of every "
           "matrix; 0: none");
  k.choice("hardware", c.metrics.hardware, {"auto", "on", "off"},
           "read clocks, power, temperature, errors and memory of the rank's GPU from the driver "
           "(NVML) once a second; auto: in runs on GPUs; on: also the activity of its units and "
           "links, from its profiling unit (Hopper and later)");
  k.boolean("enable_tensorboard", c.metrics.enable_tensorboard, "write TensorBoard events");
  k.text("save_tb_folder", c.metrics.save_tb_folder,
         "folder of TensorBoard events in job.dump_folder");
  k.text("command", c.metrics.command,
         "shell command that receives every line of metrics.jsonl and events.jsonl on its standard "
         "input; it never delays the run: lines that it does not read are dropped; empty: none");

  k.section("alerts");
  k.text("command", c.alerts.command,
         "shell command that is started for every alert, with the event as one JSON line on its "
         "standard input; empty: none");
  k.text("webhook", c.alerts.webhook,
         "http:// or https:// address to which curl posts the event of every alert as JSON; empty: "
         "none");
  k.number("max_unsaved_seconds", c.alerts.max_unsaved_seconds, at_least(0),
           "alert if no checkpoint has become durable for so long; 0: never");
  k.number("slow_logs", c.alerts.slow_logs, at_least(0),
           "alert if so many log lines in a row are slower than the prediction's band; 0: never");
  k.number("skipped_steps", c.alerts.skipped_steps, at_least(0),
           "alert if so many of the last 100 steps were skipped; 0: never");

  k.section("parallelism");
  k.number("data_parallel_replicate_degree", c.parallelism.data_parallel_replicate_degree, degree,
           "copies of the training state (DDP, HSDP); one of all degrees may be -1: the remaining "
           "ranks");
  k.number("data_parallel_shard_degree", c.parallelism.data_parallel_shard_degree, degree,
           "ranks that share one copy of the training state (FSDP, ZeRO)");
  k.number("tensor_parallel_degree", c.parallelism.tensor_parallel_degree, degree,
           "ranks that share each matrix (tp); must divide heads, kv_heads and ffn");
  k.number("pipeline_parallel_degree", c.parallelism.pipeline_parallel_degree,
           {.low = 1, .high = spec::max_pp, .or_value = -1}, "ranks that share the layers (pp)");
  static const std::string schedules_help =
      schedule::listed_names("or") +
      ", in any spelling, or by PyTorch's name (Interleaved1F1B, ZBVZeroBubble, DualPipeV; for "
      "InterleavedZeroBubble runs interleaved); docs/schedules.md";
  k.text("pipeline_parallel_schedule", c.parallelism.pipeline_parallel_schedule, schedules_help);
  k.text(
      "pipeline_parallel_schedule_file", c.parallelism.pipeline_parallel_schedule_file,
      "file of a custom schedule, in the text form of docs/schedules.md, instead of a named one; "
      "messages and reductions are added if it has none");
  k.number("pipeline_parallel_chunks", c.parallelism.pipeline_parallel_chunks,
           {.low = 0, .high = spec::max_pp},
           "stages of a rank; 0: the default of the schedule, 2 for interleaved");
  k.numbers("pipeline_parallel_first_layers", c.parallelism.pipeline_parallel_first_layers,
            {.low = 0, .high = 1 << 20},
            "first layer of each stage; 0 is the embedding, the last layer is the head; empty: "
            "stages of equal FLOPs");
  k.number("pipeline_parallel_send_buffers", c.parallelism.pipeline_parallel_send_buffers,
           {.low = 1, .high = 1024}, "messages to one stage that may be in flight at one time");
  k.number("context_parallel_degree", c.parallelism.context_parallel_degree, degree,
           "ranks that share each sequence (cp), for long sequences; docs/long-sequences.md");
  k.choice("context_parallel_kind", c.parallelism.context_parallel_kind,
           {"ulysses", "gather", "ring", "ulysses_gather", "ulysses_ring"},
           "how these ranks compute attention: exchange rows for heads (ulysses), gather keys and "
           "values of all rows (gather), or pass them round (ring); ulysses_gather and "
           "ulysses_ring: ulysses among adjacent ranks, the other one across them");
  k.choice("context_parallel_slices", c.parallelism.context_parallel_slices,
           {"zigzag", "contiguous", "striped", "blocks"},
           "rows of a sequence that a rank has: chunks r and 2 cp - 1 - r of 2 cp chunks "
           "(zigzag), one chunk (contiguous), every cp-th row (striped), or blocks that are "
           "assigned by the work of documents (blocks)");
  k.number("context_parallel_ulysses_degree", c.parallelism.context_parallel_ulysses_degree,
           {.low = 0, .high = spec::max_degree},
           "ranks of the ulysses part of ulysses_gather and ulysses_ring, a divisor of "
           "context_parallel_degree; 0: the largest below it that divides the kv_heads of a rank");
  k.number("expert_parallel_degree", c.parallelism.expert_parallel_degree,
           {.low = 1, .high = spec::max_degree},
           "ranks that share the experts of a block (ep): a divisor of the number of experts; they "
           "are ranks of the other degrees, so ep does not change the number of ranks");
  k.number("expert_tensor_parallel_degree", c.parallelism.expert_tensor_parallel_degree,
           {.low = 1, .high = spec::max_degree},
           "ranks that share each expert (etp), in parts of its width; like ep, they are ranks of "
           "the other degrees");
  k.number("zero_stage", c.parallelism.zero_stage, {.low = 0, .high = 3, .or_value = -1},
           "what data_parallel_shard_degree x context_parallel_degree ranks shard: 1 optimizer "
           "state, 2 also gradients, 3 also parameters; -1: 3. Ignored on one rank");
  k.choice("fsdp_reshard_after_forward", c.parallelism.fsdp_reshard_after_forward,
           {"default", "always", "never"},
           "with zero_stage = 3, release parameters after each forward and gather them again "
           "(always), or keep them until the end of the step (never); default: never if "
           "pipeline_parallel_degree is above 1, otherwise always");
  k.boolean("sequence_parallel", c.parallelism.sequence_parallel,
            "between the matrices of a block each rank of tensor_parallel_degree stores its share "
            "of the tokens");
  k.number("logical_dp", c.parallelism.logical_dp, {.low = 0, .high = spec::max_degree},
           "workers whose gradients are summed, a multiple of the data ranks; runs with the same "
           "number give the same bits on any number of data ranks. 0: the number of data ranks");
  k.choice("reduce", c.parallelism.reduce, {"auto", "once", "each"},
           "sum gradients over workers once per step, or after each micro-batch; auto: once, but "
           "each if zero_stage is 2 or 3 and a worker has several micro-batches");
  k.choice("reduce_dtype", c.parallelism.reduce_dtype, {"f32", "bf16"},
           "format of sums over workers; f32: that of training.grad_dtype");
  k.number("prefetch", c.parallelism.prefetch, {.low = 0, .high = 1024},
           "layers whose parameters are gathered ahead, for zero_stage = 3");
  k.boolean("prefetch_after", c.parallelism.prefetch_after,
            "in backward gather the next layer after the gradients of the current one were sent, "
            "not before its backward");

  k.section("moe");
  const Range weight_or_model{.low = 0, .high = 1000, .or_value = -1};
  k.number("aux_loss", c.moe.aux_loss, weight_or_model,
           "factor of the auxiliary loss that balances experts; 0: none; -1: that of the model "
           "file");
  k.choice("aux_scope", c.moe.aux_scope, {"model", "sequence", "micro_batch", "global"},
           "tokens that the auxiliary loss balances: of each sequence, of a micro-batch, or of all "
           "ranks in the step so far; model: that of the model file");
  k.number("z_loss", c.moe.z_loss, weight_or_model,
           "factor of the loss on large router logits; 0: none; -1: that of the model file");
  k.number("bias_rate", c.moe.bias_rate, weight_or_model,
           "change of the router's bias in a step; 0: it does not change; -1: that of the model "
           "file");
  k.number("row_budget", c.moe.row_budget, between(1, 1024),
           "rows that a rank reserves for pairs of a token and an expert, as a multiple of the "
           "number it would receive if all experts were equally busy");
  k.choice("overflow", c.moe.overflow, {"strict", "drop"},
           "when more pairs arrive than the row budget has rows. strict: the step is not applied, "
           "and is repeated with a larger budget; drop: these pairs contribute nothing and are "
           "counted");
  k.number("capacity", c.moe.capacity, {.low = 0, .high = 1024},
           "limit on the pairs of one expert, as a multiple of the mean; pairs above it contribute "
           "nothing and are counted; 0: no limit");

  k.section("comm");
  k.choice("backend", c.comm.backend, {"auto", "threads", "gloo", "nccl"},
           "how ranks communicate; auto: threads of one process without a launcher, otherwise nccl "
           "on GPUs and gloo on CPUs");
  k.number("deadline_s", c.comm.deadline_s, positive(),
           "seconds that one communication may take before the run is aborted with a verdict; "
           "launch --deadline overrides it");
  k.boolean(
      "fixed_order", c.comm.fixed_order,
      "nccl sums in the fixed order of threads and gloo: the same bits on any number of ranks, "
      "and in repeated steps. false: nccl's own sums, whose bits depend on the number of "
      "ranks; threads and gloo always sum in the fixed order");
  k.boolean("capture", c.comm.capture,
            "nccl: steps are captured as a CUDA graph with their communication, and replayed; "
            "fewer gaps between small kernels, but no transfer of a step beside the next one");
  k.boolean("debug", c.comm.debug,
            "ranks compare their calls before each collective, and the first mismatch is reported "
            "(slow); also enabled by TRIREME_COMM_DEBUG=1");

  k.section("elastic");
  k.number("detect_s", c.elastic.detect_s, {.low = 0.5, .high = count_limit},
           "seconds within which a rank that is stopped, and sends no heartbeat, is found under "
           "trireme launch");
  k.choice("peer", c.elastic.peer, {"auto", "true", "false"},
           "copies of each rank's training state in host memory that outlives its process, under "
           "trireme launch; auto: where the ranks that are left may lack a part of it");
  k.number("peer_interval", c.elastic.peer_interval, {.low = 0, .high = 1000000000},
           "steps between these copies; 0: the smallest number at which they cost at most "
           "elastic.peer_cost");
  k.number("peer_cost", c.elastic.peer_cost, positive(),
           "with elastic.peer_interval = 0: the time for which copies may delay steps, as a "
           "fraction of the time of steps");
  k.number("peer_buffers", c.elastic.peer_buffers, {.low = 2, .high = 3},
           "copies of the state in memory of each rank: 2, or 3, of which one more may be "
           "incomplete");
  k.text("domains", c.elastic.domains,
         "a file with a host and its failure domain (rack, switch) in each line: with several "
         "nodes, copies are kept on nodes of other domains; empty: each node is a domain");
  k.text("notice_file", c.elastic.notice_file,
         "a file by which a machine announces that it is about to be taken away: when the file "
         "appears or its time changes, the run saves and stops with exit code 75, as after "
         "SIGTERM; empty: none");
  k.text("notice_command", c.elastic.notice_command,
         "shell command that is run every 2 s: exit code 0 is such a notice; every other one, and "
         "no end within 5 s, is none; empty: none");
  k.number("grace_s", c.elastic.grace_s, at_least(0),
           "seconds between a request to stop, or a notice, and the end of the machine; the time "
           "that a stop takes is printed and compared with it; 0: unknown");

  k.section("system");
  k.choice("device", c.system.device, {"auto", "cuda", "gpu", "cpu"},
           "where to run; auto: a GPU if one is usable, otherwise the CPU; gpu: the same as cuda");
  k.number("gpu", c.system.gpu, {.low = 0, .high = 1023},
           "index of the GPU, from 0, as `trireme doctor` lists them");
  k.choice("determinism", c.system.determinism, {"l1", "fast"},
           "l1: deterministic, repeated runs give the same bits; fast: also kernels whose order of "
           "sums varies");
  k.text("cache_folder", c.system.cache_folder,
         "folder for measured choices of GPU algorithms; empty: the folder named by "
         "TRIREME_CACHE_DIR, otherwise trireme in XDG_CACHE_HOME, otherwise ~/.cache/trireme");
  k.number("threads", c.system.threads, {.low = 0, .high = 4096},
           "threads of the CPU device; 0: OMP_NUM_THREADS, or this rank's share of the cores that "
           "affinity mask and cgroup allow");
  k.number(
      "peak_tflops", c.system.peak_tflops, at_least(0),
      "peak of the device in 10^12 operations/s, for MFU; 0: that of the datasheet for a known "
      "GPU, otherwise that of measured matrix products on a GPU, otherwise none");
  k.text(
      "machine", c.system.machine,
      "machine file for the prediction of the step's time, a name in machines/ or a path; empty: "
      "the file that names this GPU");
  k.number("price_per_hour", c.system.price_per_hour, at_least(0),
           "dollars that one device costs per hour, for ledger.json; 0: that of the machine file");

  k.section("debug");
  k.number("seed", c.debug.seed, {.low = 0, .high = 9e15},
           "random seed of initial weights and of the order of samples");
  std::vector<Key> keys = k.take();
  for (const List& list : lists()) {
    for (size_t i = 0; i < list.size(c); ++i) {
      for (Key& key : list.keys(c, i)) keys.push_back(std::move(key));
    }
  }
  return keys;
}

std::string_view type_name(const Key& key) {
  static constexpr std::string_view names[] = {"boolean", "integer",          "number",
                                               "string",  "list of integers", "table of numbers"};
  return names[key.field.index()];
}

std::string value_text(const Key& key) {
  struct KeyVisitor {
    std::string operator()(const bool* v) const { return *v ? "true" : "false"; }
    std::string operator()(const int64_t* v) const { return fmt::format("{}", *v); }
    std::string operator()(const double* v) const { return fmt::format("{}", *v); }
    std::string operator()(const std::string* v) const { return fmt::format("\"{}\"", *v); }
    std::string operator()(const std::vector<int64_t>* v) const {
      return fmt::format("[{}]", fmt::join(*v, ", "));
    }
    std::string operator()(const NamedNumbers* v) const {
      std::string text;
      for (const auto& [name, number] : *v) {
        text +=
            fmt::format("{}{} = {}", text.empty() ? " " : ", ", base::Json(name).dump(), number);
      }
      return fmt::format("{{{}}}", text.empty() ? "" : text + " ");
    }
  };
  return std::visit(KeyVisitor{}, key.field);
}

base::Json value_json(const Key& key) {
  if (const auto* const* numbers = std::get_if<NamedNumbers*>(&key.field)) {
    base::Json table = base::Json::object();
    for (const auto& [name, number] : **numbers) table[name] = number;
    return table;
  }
  return std::visit([](const auto* value) { return base::Json(*value); }, key.field);
}

std::string rule_text(const Key& key) {
  if (!key.choices.empty()) return fmt::format("one of {}", fmt::join(key.choices, ", "));
  return key.range.text();
}

}  // namespace trireme::config
