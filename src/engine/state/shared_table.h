// SPDX-License-Identifier: Apache-2.0
// SharedTable: one pp rank's part in sharing the token table of a model with a tied head
// (spec::SharedTable lists owner, reader and the bytes that move).
//
// If embedding and head are on one rank, the head reads the table in the embedding's bucket.
// Otherwise the reader has a copy, which the owner sends in every step, and before an evaluation if
// weights have changed since. The head always has a separate gradient accumulator; with each leaf
// it is added to the embedding's gradients, directly or after a message from reader to owner.
//
// In a model without a tied head, and on ranks between the two, every call does nothing.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "device/memory.h"
#include "engine/groups/data_groups.h"
#include "engine/state/bucket.h"
#include "engine/step/pipe.h"
#include "spec/plan.h"

namespace trireme::engine {

class SharedTable {
 public:
  struct Memory {
    device::Arena& params;
    device::Arena& grads;
    device::Arena& comm;
  };
  // `buckets` are those of the rank, in the order of their layers: the embedding's is the first of
  // the owner; the head's is the last of the reader, and the constructor sets its views of table
  // and gradients.
  SharedTable(const spec::ModelSpec&, const spec::Plan&, DataGroups&, Pipe&,
              std::span<Bucket> buckets, const Memory&);

  // Returns the bucket whose parameters the forward of `bucket` reads besides its own, or -1.
  int read_with(int bucket) const { return bucket == reader_ && owner_ >= 0 ? owner_ : -1; }

  // ---- the table, from owner to reader
  // Marks the reader's copy as out of date. All ranks call it after every change of weights.
  void set_stale() { is_stale_ = true; }
  bool is_stale() const { return is_stale_; }
  // Requests the transfer of the table to its reader. A step does so even if an evaluation just
  // did: so all steps have the same traffic, as their prediction and their captured graph have.
  void begin_step();
  // The same, if the copy is stale.
  void begin_evaluation();
  // On the owner: sends the table if begin_step() or begin_evaluation() requested it. On the
  // reader: compute that is queued from here on reads the table that was sent.
  void use(int bucket);
  // Compute that is queued from here on may overwrite the owner's parameters.
  void before_change(int bucket);

  // ---- gradients, from reader to owner
  // Compute that is queued from here on may overwrite the head's gradients.
  void before_zero(int bucket);
  // A leaf of `bucket` is complete. On the reader: sends the head's gradients. On the owner: adds
  // them to the embedding's, on the data stream. REQUIRES: the data stream waits for compute.
  void bring_grads(int bucket);
  // The number of leaves whose gradients the reader keeps until they are sent.
  size_t staged() const { return staged_.size(); }

 private:
  bool is_split() const { return peer_ >= 0; }
  void take_reader(const spec::SharedTable&, const spec::Plan&, std::span<Bucket>, const Memory&);
  void send_grads();

  DataGroups& groups_;
  Pipe& pipe_;
  int owner_ = -1, reader_ = -1;  // buckets of embedding and head; -1: not on this rank
  int peer_ = -1;                 // along pp: the other one's rank; -1: the same rank, or none
  bool is_stale_ = true;

  // ---- on the owner
  device::Tensor table_, grads_;   // the embedding's views
  device::Tensor received_grads_;  // the reader's, if split
  bool is_due_ = false;            // to be sent when it is next used
  std::unique_ptr<comm::Sent> table_sent_;

  // ---- on the reader
  device::Tensor copy_;  // if split
  device::Tensor head_grads_;
  device::Event table_arrived_;
  device::Event added_;  // on the data stream: head_grads_ was read; if not split
  std::vector<device::Tensor> staged_;
  std::vector<std::unique_ptr<comm::Sent>> grads_sent_;  // by staged_, or one for head_grads_
  size_t next_staged_ = 0;
};

}  // namespace trireme::engine
