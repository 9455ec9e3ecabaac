// SPDX-License-Identifier: Apache-2.0
// The rule book: what a layout must keep to, one entry a rule. Configuration errors, check_plan(),
// the planner's search and its importers all use these entries; none of them has rules of its own.
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

// The fields that rules are about; messages name them by LayoutNames.
enum class LayoutKey : uint8_t {
  tp,
  cp,
  pp,
  dp_replicate,
  dp_shard,
  ep,
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
  grad_dtype,
  master_dtype,
  reduce_dtype,
  reshard,
  prefetch,
  head_chunk_rows,
  model,
  count
};
using LayoutNames = std::array<std::string, static_cast<size_t>(LayoutKey::count)>;
const LayoutNames& layout_names();  // "tp", "cp", ...: the names of the fields

// What of a model limits layouts. 0 or empty: not known, and then no rule is about it.
struct ModelSizes {
  std::string name;
  // Sizes that tp must divide, by name, of all kinds of blocks; kv_heads apart.
  std::vector<std::pair<std::string, int64_t>> tp_cuts;
  std::vector<int64_t> kv_heads;
  int64_t vocab = 0, max_seq = 0;
  int64_t layers = 0;   // with embedding and head
  int64_t experts = 0;  // 0: none
  bool is_tied = false;
  double activations_per_token = 0;  // elements (model.h, activation_elements())
};
ModelSizes sizes_of(const ModelSpec&);
// The dimensions may break rules of make_model().
ModelSizes sizes_of(const ModelDims&);

// Whose rule it is: every program's, or that of this engine alone.
enum class Whose : uint8_t { any, engine };

struct RuleCase {
  const ModelSizes& model;
  const Workload& work;
  int64_t ranks = 0;  // that there are; 0: as many as the degrees ask for
  const Layout& asked;
  const Layout& l;  // settled as far as possible
  const LayoutNames& names;

  const std::string& name(LayoutKey key) const { return names[static_cast<size_t>(key)]; }
};

// What a rule needs to be known before it can be looked at; a broken rule spoils some of it for
// those behind it.
struct Known {
  static constexpr unsigned degrees = 1, data = 2, batch = 4, schedule = 8, cut = 16, context = 32;
  static constexpr unsigned all = 63;
};

struct Rule {
  std::string_view id;  // "tp.divides"
  Whose whose = Whose::any;
  std::vector<LayoutKey> keys;  // that the rule is about; a message begins with the name of one
  unsigned needs = 0, spoils = 0;
  bool (*holds)(const RuleCase&) = nullptr;
  // What is wrong, with the nearest values that are legal. REQUIRES: the rule is broken.
  std::string (*message)(const RuleCase&) = nullptr;
};
std::span<const Rule> rule_book();
// Null: there is none of that id.
const Rule* find_rule(std::string_view id);

struct Broken {
  const Rule* rule = nullptr;
  std::string text;  // without the id
};
// "tp = 3: heads = 8 does not divide by it; nearest: 2 or 4 [tp.divides]"
std::string to_text(const Broken&);

// Every broken rule of any program or, with Whose::engine, of this engine, too.
std::vector<Broken> broken_rules(const RuleCase&, Whose);
// The first of them, without its message; null: none.
const Rule* first_broken(const RuleCase&, Whose);

// Fills in what `asked` leaves open and gives fields that have no meaning in this layout their only
// value (Layout's comments), without a look at rules or model. `ranks`: as RuleCase.
Layout filled(const Layout& asked, const Workload&, int64_t ranks = 0);

struct Settled {
  Layout layout;  // no field is open, as far as that was possible
  std::vector<Broken> broken;
};
// filled(), and all rules.
Settled settle(const ModelSizes&, const Workload&, int64_t ranks, const Layout& asked,
               Whose = Whose::engine, const LayoutNames& = layout_names());

// "a, b or c".
std::string joined(const std::vector<std::string>& parts, std::string_view last);
// "8", or "8 or 16": the multiples of `unit` on both sides of `value`, for messages.
std::string nearest_multiples(int64_t value, int64_t unit);

}  // namespace trireme::spec
