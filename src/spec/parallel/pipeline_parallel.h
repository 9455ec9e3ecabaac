// SPDX-License-Identifier: Apache-2.0
// How ranks along pp share a model: the messages between them, their channels, and the rules of a
// plan with stages.
//
// A channel goes from one rank to another and carries one kind of message, first in, first out.
// Between stages these are outputs and their gradients. If embedding and head share the token table
// and are on different ranks, the embedding's rank owns it: it sends the table to the head's rank
// before the step's first use, and receives the head's gradients of it, leaf by leaf.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "spec/plan.h"

namespace trireme::spec {

enum class PipeKind : uint8_t { activations, gradients, table, table_gradients };
std::string_view name_of(PipeKind);

struct PipeChannel {
  int from = 0, to = 0;  // along pp
  PipeKind kind = PipeKind::activations;
  auto operator<=>(const PipeChannel&) const = default;
};
// Returns all channels of the plan, in order.
std::vector<PipeChannel> pipe_channels(const ModelSpec&, const Plan&);

// The tensor of one message between stages; empty with one stage.
base::TensorSpec message_spec(const ModelSpec&, const Plan&);

// The token table of a model with a tied head. It belongs to the embedding's rank; the head reads
// it and adds to an accumulator that only the head has. With each leaf the head's gradients are
// added to the embedding's. If the two are on different ranks, the owner sends the table to the
// reader once a step, and the reader sends its gradients to the owner once a leaf.
struct SharedTable {
  int owner = 0, reader = 0;     // ranks along pp: the embedding's, the head's
  bool is_in_one_stage = false;  // the head reads the table where it was gathered for the embedding

  // ---- memory; specs of no dimension take none
  base::TensorSpec head_grads;      // on the reader
  base::TensorSpec copy;            // on the reader if is_split(): it counts as parameters
  base::TensorSpec received_grads;  // on the owner if is_split()
  // On the reader if is_split(): gradients of the leaves that it completes before the owner takes
  // the first of them. The owner does so at the end of its backward of the leaf, and others have
  // begun by then. Empty: the owner takes each before the next leaf begins, straight from
  // head_grads.
  std::vector<base::TensorSpec> staged_grads;

  // ---- bytes that are sent in a step
  int64_t table_bytes = 0;  // by the owner
  int64_t grad_bytes = 0;   // by the reader

  bool is_split() const { return owner != reader; }
  int64_t bytes_sent_by(int pp_rank) const;
};
// Returns nothing for a model without a tied head.
std::optional<SharedTable> shared_table(const ModelSpec&, const Plan&);

// ---- memory of a pp rank for messages
struct PipeBuffers {
  base::TensorSpec message;
  int messages = 0;  // number of them: send_buffers for each channel between stages
};
PipeBuffers pipe_buffers(const ModelSpec&, const Plan&, int pp_rank);
int64_t bytes_of(const PipeBuffers&);

// ---- bytes that a pp rank sends in a step
struct PipeTraffic {
  int64_t activations = 0, gradients = 0;
  int64_t table = 0;  // and its gradients
};
PipeTraffic predict_pipe_traffic(const ModelSpec&, const Plan&, int pp_rank);

// Calls broken(message) for every property of the plan's stages and schedule that does not follow
// from its layout, or that the engine cannot run. REQUIRES: the layout breaks no rule.
void check_stages(const ModelSpec&, const Plan&,
                  const std::function<void(const std::string& rule)>& broken);

// Is every output sent before the next one for the same channel is computed?
bool sends_in_turn(const schedule::Schedule&);

// Are the gradients of each leaf complete before those of another begin, on every stage? With
// `one_accumulator` the stages of a rank share one gradient accumulator.
bool leaves_come_in_turn(const Plan&, bool one_accumulator);
// The same for a tied table whose two users are different stages of one rank: the head's gradients
// of a leaf are read with the embedding's, so those of the next leaf must not have begun.
bool tied_leaves_come_in_turn(const Plan&);

}  // namespace trireme::spec
