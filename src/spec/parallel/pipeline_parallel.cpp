// SPDX-License-Identifier: Apache-2.0
#include "spec/parallel/pipeline_parallel.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "schedule/lives.h"
#include "schedule/prefixes.h"
#include "spec/memory/predict.h"
#include "spec/parallel/bucket.h"
#include "spec/parallel/data_parallel.h"

namespace trireme::spec {
namespace {

using schedule::Action;
using schedule::Op;

PipeKind kind_of(Op op) { return op == Op::SendY ? PipeKind::activations : PipeKind::gradients; }

int last_layer(const ModelSpec& model) { return static_cast<int>(model.layers.size()) - 1; }

// Is every output sent before the next one for the same channel is computed?
bool sends_in_turn(const schedule::Schedule& schedule, size_t rank) {
  std::map<std::pair<int, PipeKind>, bool> waits;
  for (const Action& action : schedule.program[rank]) {
    if (is_send(action.op)) waits[{action.peer, kind_of(action.op)}] = false;
    const bool is_f = action.op == Op::F;
    if (!is_f && action.op != Op::B && action.op != Op::BW) continue;
    const int to_stage = action.stage + (is_f ? 1 : -1);
    if (to_stage < 0 || to_stage >= schedule.stages()) continue;
    const int to = schedule.rank_of(to_stage, action.microbatch);
    if (to == static_cast<int>(rank)) continue;
    bool& waits_here = waits[{to, is_f ? PipeKind::activations : PipeKind::gradients}];
    if (waits_here) return false;
    waits_here = true;
  }
  return true;
}

// Returns the channels on which a rank sends outputs and gradients. A rank has few channels and
// many messages.
std::vector<PipeChannel> channels_between_stages(const Plan& plan, int rank) {
  std::vector<PipeChannel> channels;
  for (const Action& action : plan.schedule.program[static_cast<size_t>(rank)]) {
    if (!is_send(action.op)) continue;
    const PipeChannel channel{rank, action.peer, kind_of(action.op)};
    if (std::find(channels.begin(), channels.end(), channel) == channels.end()) {
      channels.push_back(channel);
    }
  }
  return channels;
}

// Returns where the leaves of a stage begin and end in the program of its rank, in the order of
// their ends.
struct LeafSpan {
  int begin = -1, end = -1;
};
std::vector<LeafSpan> leaf_spans(const Plan& plan, int rank, int stage) {
  std::map<std::pair<int, int>, LeafSpan> spans;
  const std::vector<Action>& program = plan.schedule.program[static_cast<size_t>(rank)];
  for (int i = 0; i < static_cast<int>(program.size()); ++i) {
    const Action& action = program[static_cast<size_t>(i)];
    if (action.stage != stage || action.microbatch < 0) continue;
    const Leaf leaf = leaf_of(plan, action.microbatch);
    LeafSpan& span = spans[{leaf.hosted, leaf.round}];
    if (action.op == Op::F && span.begin < 0) span.begin = i;
    if (action.op == Op::W || action.op == Op::BW) span.end = i;
  }
  std::vector<LeafSpan> all;
  for (const auto& [leaf, span] : spans) all.push_back(span);
  std::sort(all.begin(), all.end(),
            [](const LeafSpan& x, const LeafSpan& y) { return x.end < y.end; });
  return all;
}

// Returns the number of SharedTable::staged_grads.
int leaves_sent_ahead(const Plan& plan, int owner, int reader) {
  if (hosted_workers(plan) * reduce_rounds(plan) == 1) return 0;
  const std::vector<LeafSpan> taken = leaf_spans(plan, owner, 0);
  const std::vector<LeafSpan> sent = leaf_spans(plan, reader, plan.stages() - 1);
  schedule::Prefixes prefixes(plan.schedule, plan.layout.send_buffers);
  int ahead = 0;
  for (size_t leaf = 0; leaf + 1 < taken.size(); ++leaf) {
    // The leaves that the owner has begun by then: so many let the reader run without waiting.
    const auto begun = std::count_if(taken.begin(), taken.end(), [&](const LeafSpan& span) {
      return span.begin < taken[leaf].end;
    });
    ahead = std::max(ahead, static_cast<int>(begun) - static_cast<int>(leaf) - 1);
    // The leaves that must have been sent: fewer would deadlock.
    prefixes.need(owner, taken[leaf].end + 1);
    const int reached = prefixes.of(reader);
    if (sent[leaf + 1].begin >= reached) continue;
    const auto ended = std::count_if(
        sent.begin(), sent.end(), [reached](const LeafSpan& span) { return span.end < reached; });
    ahead = std::max(ahead, std::max(1, static_cast<int>(ended) - static_cast<int>(leaf)));
  }
  return ahead;
}

bool adds_gradients(const Action& action, int last_stage) {
  // The head adds to its gradients in F.
  return action.op == Op::B || action.op == Op::W || action.op == Op::BW ||
         (action.op == Op::F && action.stage == last_stage);
}

// Checks, for leaves in the order in which they are added to, that each ends before another begins.
template <typename Id>
class Turns {
 public:
  // Returns false if this leaf has ended before.
  bool take(const Id& leaf) {
    if (now_ == leaf) return true;
    if (now_) over_.insert(*now_);
    now_ = leaf;
    return !over_.contains(leaf);
  }

 private:
  std::optional<Id> now_;
  std::set<Id> over_;
};

void check_cut(const ModelSpec& model, const Plan& plan,
               const std::function<void(const std::string& rule)>& broken) {
  const std::vector<int>& cut = plan.first_layer_of_stage;
  const int layers = last_layer(model) + 1;
  if (plan.stages() != plan.schedule.stages()) {
    broken(fmt::format("{} stage starts for a schedule of {} stages", plan.stages(),
                       plan.schedule.stages()));
    return;
  }
  if (cut.empty() || cut.front() != 0) {
    broken("first_layer_of_stage: must begin with 0");
    return;
  }
  for (size_t s = 0; s < cut.size(); ++s) {
    const int end = s + 1 < cut.size() ? cut[s + 1] : layers;
    if (cut[s] >= 0 && cut[s] < end && end <= layers) continue;
    broken(
        fmt::format("stage {} would have layers {} to {}: every stage needs at least one of the "
                    "{} layers (embedding and head count)",
                    s, cut[s], end - 1, layers));
  }
}

}  // namespace

std::string_view name_of(PipeKind kind) {
  constexpr std::array<std::string_view, 4> names = {"activations", "gradients", "table",
                                                     "table gradients"};
  return names[static_cast<size_t>(kind)];
}

std::vector<PipeChannel> pipe_channels(const ModelSpec& model, const Plan& plan) {
  std::set<PipeChannel> channels;
  for (int rank = 0; rank < plan.schedule.ranks; ++rank) {
    const std::vector<PipeChannel> own = channels_between_stages(plan, rank);
    channels.insert(own.begin(), own.end());
  }
  if (const auto table = shared_table(model, plan); table && table->is_split()) {
    channels.insert({table->owner, table->reader, PipeKind::table});
    channels.insert({table->reader, table->owner, PipeKind::table_gradients});
  }
  return {channels.begin(), channels.end()};
}

base::TensorSpec message_spec(const ModelSpec& model, const Plan& plan) {
  if (plan.stages() == 1) return {};
  const int64_t width = std::get<HeadSpec>(model.layers.back()).width;
  return {{local_shape_of(plan).rows(), width}, plan.recipe.storage};
}

int64_t SharedTable::bytes_sent_by(int pp_rank) const {
  return pp_rank == owner ? table_bytes : pp_rank == reader ? grad_bytes : 0;
}

std::optional<SharedTable> shared_table(const ModelSpec& model, const Plan& plan) {
  const int64_t elements = tied_elements(params_of(model, last_layer(model)), plan.mesh);
  if (elements == 0) return {};
  const schedule::Lane& lane = plan.schedule.lanes.front();
  SharedTable table{
      .owner = lane.front(), .reader = lane.back(), .is_in_one_stage = plan.stages() == 1};
  const base::TensorSpec grads{{elements}, plan.recipe.grad};
  if (!plan.inference) table.head_grads = grads;
  if (!table.is_split()) return table;
  table.copy = {{elements}, plan.recipe.storage};
  table.received_grads = grads;
  table.staged_grads.assign(static_cast<size_t>(leaves_sent_ahead(plan, table.owner, table.reader)),
                            grads);
  const int64_t leaves = hosted_workers(plan) * reduce_rounds(plan);
  table.table_bytes = elements * base::size_of(plan.recipe.storage);
  table.grad_bytes = leaves * elements * base::size_of(plan.recipe.grad);
  return table;
}

PipeBuffers pipe_buffers(const ModelSpec& model, const Plan& plan, int pp_rank) {
  return {.message = message_spec(model, plan),
          .messages = plan.layout.send_buffers *
                      static_cast<int>(channels_between_stages(plan, pp_rank).size())};
}

int64_t bytes_of(const PipeBuffers& buffers) {
  return buffers.messages * base::bytes_of(buffers.message);
}

PipeTraffic predict_pipe_traffic(const ModelSpec& model, const Plan& plan, int pp_rank) {
  PipeTraffic sum;
  const base::TensorSpec message = message_spec(model, plan);
  const int64_t bytes = message.shape.elements() * base::size_of(message.dtype);
  for (const Action& action : plan.schedule.program[static_cast<size_t>(pp_rank)]) {
    if (action.op == Op::SendY) sum.activations += bytes;
    if (action.op == Op::SendDx) sum.gradients += bytes;
  }
  if (const auto table = shared_table(model, plan)) sum.table = table->bytes_sent_by(pp_rank);
  return sum;
}

void check_stages(const ModelSpec& model, const Plan& plan,
                  const std::function<void(const std::string& rule)>& broken) {
  const schedule::Schedule& schedule = plan.schedule;
  const Layout& l = plan.layout;
  if (schedule.ranks != l.pp || schedule.microbatches != l.rank_microbatches() ||
      schedule.stages() != l.pp * l.chunks) {
    broken(
        fmt::format("plan: its schedule has {} ranks, {} stages and {} micro-batches, but its "
                    "layout has {}, {} and {}",
                    schedule.ranks, schedule.stages(), schedule.microbatches, l.pp, l.pp * l.chunks,
                    l.rank_microbatches()));
    return;
  }
  check_cut(model, plan, broken);
  const auto checked = schedule::check(schedule, l.send_buffers);
  if (!checked) broken("schedule: " + checked.reason());
  const bool reduces = std::ranges::all_of(schedule.program, [](const auto& program) {
    return std::ranges::any_of(program,
                               [](const Action& action) { return action.op == Op::ReduceGrads; });
  });
  // The rule book checks the layout's schedule, which may differ from the plan's.
  if (l.shards_grads() && std::ranges::any_of(schedule.program, schedule::splits_backward)) {
    broken(
        "sharded gradients need a schedule with merged backward (BW): between B and W of a layer "
        "its whole gradient would have to be kept");
  }
  const bool has_several = l.shards_grads() || hosted_workers(plan) > 1 || reduce_rounds(plan) > 1;
  if (has_several && !leaves_come_in_turn(plan, l.shards_grads())) {
    broken(
        "sharded gradients, several workers per rank and reduce = each need a schedule that ends "
        "the "
        "backward of a micro-batch before the gradients of the next begin");
  }
  if (is_tied(model) && !tied_leaves_come_in_turn(plan)) {
    broken(
        "a tied head, its first and last stage on one rank: the head's gradients of the next "
        "micro-batch would begin before those of the first are summed");
  }
  if (sums_with_peers(plan.mesh) && !reduces) {
    broken("a schedule for several data ranks needs ReduceGrads");
  }
}

bool sends_in_turn(const schedule::Schedule& schedule) {
  for (size_t rank = 0; rank < schedule.program.size(); ++rank) {
    if (!sends_in_turn(schedule, rank)) return false;
  }
  return true;
}

bool leaves_come_in_turn(const Plan& plan, bool one_accumulator) {
  for (const std::vector<Action>& program : plan.schedule.program) {
    // By stage, or for the whole rank: the current leaf, and those that have ended.
    using StageLeaf = std::tuple<int, int, int>;  // stage, worker, round
    std::map<int, Turns<StageLeaf>> all;
    for (const Action& action : program) {
      if (!adds_gradients(action, plan.stages() - 1)) continue;
      const Leaf at = leaf_of(plan, action.microbatch);
      if (!all[one_accumulator ? 0 : action.stage].take({action.stage, at.hosted, at.round})) {
        return false;
      }
    }
  }
  return true;
}

bool tied_leaves_come_in_turn(const Plan& plan) {
  const schedule::Lane& lane = plan.schedule.lanes.front();
  const int last_stage = plan.stages() - 1;
  if (last_stage == 0 || lane.front() != lane.back()) return true;
  Turns<std::pair<int, int>> turns;  // worker, round
  for (const Action& action : plan.schedule.program[static_cast<size_t>(lane.front())]) {
    const bool has_table = action.stage == 0 || action.stage == last_stage;
    if (!has_table || !adds_gradients(action, last_stage)) continue;
    const Leaf at = leaf_of(plan, action.microbatch);
    if (!turns.take({at.hosted, at.round})) return false;
  }
  return true;
}

}  // namespace trireme::spec
