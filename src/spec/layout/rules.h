// SPDX-License-Identifier: Apache-2.0
// The rules that a layout must follow, one entry per rule. Configuration errors, check_plan(), the
// planner's search and its importers all use these entries and have no other rules.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "spec/layout/layout.h"
#include "spec/model.h"

namespace trireme::spec {

// The fields that rules check; messages name them by LayoutNames.
enum class LayoutKey : uint8_t {
  tp,
  cp,
  context_kind,
  context_slices,
  ulysses,
  pp,
  dp_replicate,
  dp_shard,
  ep,
  etp,
  row_budget,
  overflow,
  expert_capacity,
  zero_stage,
  sequence_parallel,
  placement,
  schedule,
  chunks,
  custom_schedule,
  first_layers,
  send_buffers,
  micro_batch,
  accumulation,
  global_batch,
  seq_len,
  logical_dp,
  reduce,
  recompute,
  precision,
  bf16_first,
  bf16_last,
  bf16_blocks,
  optimizer,
  grad_dtype,
  master_dtype,
  reduce_dtype,
  reshard,
  prefetch,
  head_chunk_rows,
  ffn_rows,
  model,
  count
};
using LayoutNames = std::array<std::string, static_cast<size_t>(LayoutKey::count)>;
const LayoutNames& layout_names();  // "tp", "cp", ...: the names of the fields

// A width of a block's products, and the degree that cuts it.
struct ProductWidth {
  enum class Cut : uint8_t { none, tp, etp };
  std::string name;  // "ffn"
  int64_t size = 0;
  Cut cut = Cut::none;
  bool operator==(const ProductWidth&) const = default;
};

// The sizes of a model that limit layouts. 0 or empty: unknown, and no rule checks it.
struct ModelSizes {
  std::string name;
  // Sizes that tp must divide, by name, of all kinds of blocks; without kv_heads.
  std::vector<std::pair<std::string, int64_t>> tp_cuts;
  std::vector<int64_t> kv_heads;
  std::vector<ProductWidth> widths;  // of all kinds of blocks
  int64_t vocab = 0, max_seq = 0;
  int64_t layers = 0;   // with embedding and head
  int64_t experts = 0;  // 0: none
  int64_t expert_ffn = 0;
  bool is_tied = false;
  bool has_whole_qk_norm = false;    // BlockSpec::qk_norm_whole
  double activations_per_token = 0;  // elements (model.h, activation_elements())
};
ModelSizes sizes_of(const ModelSpec&);
// Also accepts dimensions that make_model() would refuse.
ModelSizes sizes_of(const ModelDims&);

// Does the rule hold for every program, or for this engine only?
enum class Whose : uint8_t { any, engine };

struct RuleCase {
  const ModelSizes& model;
  const Workload& work;
  int64_t ranks = 0;  // the size of the world; 0: the product of the degrees
  const Layout& asked;
  const Layout& l;  // settled as far as possible
  const LayoutNames& names;

  const std::string& name(LayoutKey key) const { return names[static_cast<size_t>(key)]; }
};

// What must be known before a rule can be checked. A broken rule makes some of it unknown for later
// rules.
struct Known {
  static constexpr unsigned degrees = 1, data = 2, batch = 4, schedule = 8, cut = 16, context = 32;
  static constexpr unsigned all = 63;
};

struct Rule {
  std::string_view id;  // "tp.divides"
  Whose whose = Whose::any;
  std::vector<LayoutKey> keys;  // that the rule checks; a message begins with the name of one
  unsigned needs = 0, spoils = 0;
  bool (*holds)(const RuleCase&) = nullptr;
  // Returns the problem and the nearest legal values. REQUIRES: the rule is broken.
  std::string (*message)(const RuleCase&) = nullptr;
};
std::span<const Rule> rule_book();
// Returns null if no rule has this id.
const Rule* find_rule(std::string_view id);

struct Broken {
  const Rule* rule = nullptr;
  std::string text;  // without the id
};
// Returns "tp = 3: heads = 8 does not divide by it; nearest: 2 or 4 [tp.divides]".
std::string to_text(const Broken&);

// Returns every broken rule of any program and, with Whose::engine, of this engine.
std::vector<Broken> broken_rules(const RuleCase&, Whose);
// Returns the first of them, without its message, or null.
const Rule* first_broken(const RuleCase&, Whose);

// Does a settled layout keep all rules about context parallelism (cp.*)?
bool context_is_legal(const ModelSizes&, const Workload&, const Layout&);

// Fills in the open fields of `asked` and sets fields without a meaning in this layout to their
// only value (see Layout). Checks neither rules nor model. `ranks`: as in RuleCase; `kv_heads`: as
// in open_ulysses().
Layout filled(const Layout& asked, const Workload&, int64_t ranks = 0,
              std::span<const int64_t> kv_heads = {});

struct Settled {
  Layout layout;  // without open fields, as far as possible
  std::vector<Broken> broken;
};
// Calls filled() and checks all rules.
Settled settle(const ModelSizes&, const Workload&, int64_t ranks, const Layout& asked,
               Whose = Whose::engine, const LayoutNames& = layout_names());

// Returns "a, b or c".
std::string joined(const std::vector<std::string>& parts, std::string_view last);
// Returns the multiples of `unit` on both sides of `value`, for messages: "8", or "8 or 16".
std::string nearest_multiples(int64_t value, int64_t unit);

}  // namespace trireme::spec
