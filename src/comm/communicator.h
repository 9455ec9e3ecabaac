// SPDX-License-Identifier: Apache-2.0
// Communicator: one rank's handle on one group of ranks. Like a kernel, a call is ordered by the
// stream it is given; all ranks of a group make the same calls in the same order. Public calls
// check sizes and overlap, count bytes, write the flight recorder and then call a private virtual
// function of the back end (threads/, gloo/, nccl/, alone.cpp).
//
// A call that is not complete after the group's deadline aborts the group; abort() wakes every
// waiter on every rank, and from then on every call throws CommAborted. If work runs later than the
// call (worker streams, GPUs), the stream's synchronize() or the next call throws.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/abort_flags.h"
#include "comm/failure/flight_recorder.h"
#include "comm/levels/transfers.h"
#include "device/device.h"
#include "device/memory.h"
#include "device/wait_watch.h"
#include "spec/facts/comm_cost.h"
#include "spec/parallel/shard.h"
#include "spec/sums/sum_levels.h"

namespace trireme::comm {

using device::ConstTensor;
using device::Stream;
using device::Tensor;

enum class Reduce : uint8_t { sum, max };

// Calls that this rank made and bytes that it sent to other ranks.
struct Traffic {
  int64_t calls = 0;
  int64_t bytes = 0;
  // The part of `bytes` that sums in the tree, and gathers in two levels, have sent to ranks of
  // other nodes. 0 if Options::nodes is empty.
  int64_t network_bytes = 0;
};

// The order in which a group computes sums (spec/parallel/sum_tree.h): the tree has `leaves` leaves
// (workers), and rank r of the group contributes the nodes `parts[r]`. Together the parts cover all
// leaves, in any order of the ranks. The default of a group is one leaf per rank.
struct SumOrder {
  int64_t leaves = 0;
  std::vector<std::vector<spec::Range>> parts;

  static SumOrder one_leaf_each(int ranks);
  // `leaves` workers, the same number on every rank.
  static SumOrder hosted(int64_t leaves, int ranks);
  bool operator==(const SumOrder&) const = default;
};

// A message that was sent and may not have arrived yet.
class Sent {
 public:
  virtual ~Sent() = default;
  // Work queued on the stream after this call may overwrite the tensor that was sent.
  virtual void wait(Stream&) = 0;
};

// How a group, and what is built on it, ends on this rank. finish: all ranks have made the same
// calls, and what is in flight is completed. abort: what is in flight is ended, because peers may
// never enter it; what it has written must not be used.
enum class End : uint8_t { finish, abort };

class Communicator {
 public:
  struct Options {
    std::string name;         // of the group, for messages: "tp", "zero of stage 0"
    double deadline_s = 600;  // of one call, from when this rank enters it
    bool fixed_order = true;  // sums in the tree; false: in the library's order, if it has sums
    // Before each collective the ranks compare the calls that they are about to make; the first
    // mismatch is reported on every rank and aborts the group. Every call then waits on the host.
    bool debug = false;
    // The node of every rank of the world, by rank, as any numbers; empty: all ranks are on one.
    // Groups whose nodes have equally many ranks, more than one, sum in the tree in two levels
    // (spec/sums/sum_levels.h), and gather so unless the library chooses the way. make_gloo()
    // and make_nccl() fill it in if it is empty.
    std::vector<int> nodes = {};
  };

  Communicator(int rank, std::vector<int> world_ranks, Options options, FlightRecorder& recorder);
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Ends this rank's part of the group; no call follows. Only the first close counts. A destructor
  // closes with End::abort. Other ranks are not notified: see abort().
  void close(End end) noexcept {
    if (!std::exchange(is_closed_, true)) do_close(end);
  }

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(world_ranks_.size()); }
  const std::string& name() const { return options_.name; }
  const Options& options() const { return options_; }
  // Ranks of the world, by rank of the group.
  const std::vector<int>& world_ranks() const { return world_ranks_; }

  // ---- collectives. Tensors are contiguous; a group of one copies or does nothing. Each comment
  // ends with the bytes that the call adds to this rank's traffic; N = size(), b = bytes of one
  // part. inout = sum or max over ranks, the same bits on all. Sums are computed in the type of the
  // tensor, f32, bf16 or f16; maxima are of f32. 2 (N-1)/N b for the largest head that divides by
  // N, (N-1) b for the rest; (N-1) b for all of it below small_elements and for a max.
  void all_reduce(Stream&, Tensor inout, Reduce);
  // out = in of rank 0, in of rank 1, ... `in` may be this rank's part of out. (N-1) b.
  void all_gather(Stream&, Tensor out, ConstTensor in);
  // out = this rank's part of the sum over ranks of `in`, rounded to the type of `in` at every
  // node. out has the type of `in` and may be this rank's part of it. (N-1)/N b.
  void reduce_scatter(Stream&, Tensor out, ConstTensor in);
  // The same if ranks contribute several partial sums, each as large as `in` above, whose nodes are
  // in `order`. out may be this rank's part of one of them. (N-1)/N b for each part of this rank.
  void reduce_scatter(Stream&, Tensor out, std::span<const ConstTensor> parts,
                      const SumOrder& order);
  // Computes the whole sum on every rank; out may be one of the parts. For b large enough, the
  // bytes of all_reduce, with its reduce-scatter half counted for each part of this rank.
  void all_reduce(Stream&, Tensor out, std::span<const ConstTensor> parts, const SumOrder& order);
  // (N-1) b on the root.
  void broadcast(Stream&, Tensor inout, int root);
  // Tensors are blocks of `capacity` rows: block r of `in` goes to rank r, which writes it to block
  // rank(). Only the first counts_out[r] rows of block r are valid; the counts (device, [size] i32)
  // are sent, too. Rows beyond the count are undefined. Complete blocks are sent: (N-1)/N b +
  // 4 (N-1).
  void all_to_all(Stream&, Tensor out, Tensor counts_in, ConstTensor in, ConstTensor counts_out,
                  int64_t capacity);
  // The same without counts: block r of `in`, of 1 / size() of its elements, goes to rank r, which
  // writes it to block rank(). (N-1)/N b.
  void all_to_all(Stream&, Tensor out, ConstTensor in);
  // out = in of the rank before this one; the first rank receives from the last. b.
  void shift(Stream&, Tensor out, ConstTensor in);
  // Messages between two ranks arrive in the order of the calls, on any streams. b on the sender.
  void send(Stream&, ConstTensor, int to);
  // As send(), but neither the host nor later work on the stream waits for the receiver:
  // Sent::wait() orders work that overwrites the tensor. The Sent must not outlive the
  // communicator; if it is destroyed without wait() before the receiver has entered recv(), the
  // receiver fails. Between processes the work of the stream must not block the host
  // (Device::make_side_stream), and a stream that sends must not also carry work that the receiver
  // needs first.
  std::unique_ptr<Sent> start_send(Stream&, ConstTensor, int to);
  void recv(Stream&, Tensor, int from);
  // The host waits until the hosts of all ranks have entered. It does not wait for any stream.
  void barrier();

  // May be called on any thread at any time. Every rank receives `reason`.
  virtual void abort(const std::string& reason) noexcept = 0;

  // Returns the flags that an abort of this rank's world sets before it ends any call; they live as
  // long as the world. Null: this communicator cannot be aborted.
  virtual AbortFlags* abort_flags() { return nullptr; }

  // Returns the group of the ranks with the same color, ordered by key, then by rank. Collective.
  // The new group inherits debug mode.
  std::unique_ptr<Communicator> split(int color, int key, Options options);
  // The same if every rank knows its subgroup: `members` are ranks of this group, in the order of
  // the new one. The lists of all ranks are equal or disjoint, and each contains its rank.
  std::unique_ptr<Communicator> subgroup(std::span<const int> members, Options options);

  // Scratch for received parts: a sum takes as many rounds as its size requires. Not owned.
  // REQUIRES, for sums in the tree over more than one part: at least 256 bytes for every part of
  // all ranks, and the same number of bytes on all ranks. Calls that sum share it, so they must be
  // on one stream or ordered by events.
  void set_buffer(Tensor buffer) { buffer_ = buffer; }

  // Whether sums of this group may be those of the library, whose order of additions is not fixed:
  // two runs of the same step may then differ in the last bits. If not, equal inputs give equal
  // bits.
  bool has_library_sums() const { return size() > 1 && !options_.fixed_order && library_can_sum(); }

  // Calls of a graph are in it once, as they were captured: who launches a graph counts the rest.
  const Traffic& traffic() const { return traffic_; }

  // Can streams that are being captured (Stream::capture) make its calls? Every launch then records
  // them like new calls.
  virtual bool can_be_captured() const { return false; }

  // The kind of wait that a call is for compute (Stream::waits()). Wait::count: of no kind.
  void set_wait(device::Wait wait) { wait_ = wait; }

 protected:
  // The public call in progress, for error messages and deadlines. Work that runs later than the
  // call keeps a copy.
  struct Call {
    const char* op = "";   // "all_reduce", ...
    int64_t sequence = 0;  // collectives: in this group; send and recv: between the two ranks
    int peer = -1;         // send and recv: rank in the group; broadcast: the root
    base::DType dtype = base::DType::u8;
    int64_t bytes = 0;  // of the caller's tensor
    int64_t record_id = 0;
    std::chrono::steady_clock::time_point deadline;
  };
  const Call& call() const { return call_; }
  FlightRecorder& recorder() { return recorder_; }
  static std::chrono::steady_clock::time_point deadline_after(double seconds);
  // Returns the Sent of a message that the receiver has at `event`.
  static std::unique_ptr<Sent> sent_at(device::Event event);

 private:
  friend class FaultyCommunicator;  // it puts itself between the fronts and a back end

  // ---- implemented by a back end. Arguments are checked byte tensors; size() > 1, except for
  // do_split.
  virtual void do_all_gather(Stream&, Tensor out, ConstTensor in) = 0;
  // Each of the ranks `from` (in ascending order) sends chunk r of its `in` to every rank r, itself
  // included. Chunk r is at in + r * stride_bytes and is chunk_bytes long; with a stride of 0 all
  // ranks get the same chunk. out receives the chunks of the ranks `from` one after the other. On a
  // rank that is not among them `in` is null. out overlaps no rank's input.
  virtual void do_exchange(Stream&, Tensor out, const std::byte* in, int64_t stride_bytes,
                           int64_t chunk_bytes, std::span<const int> from) = 0;
  // Sends and receives between pairs of ranks, all at once. Messages between two ranks arrive in
  // the order of the sender's list and of the receiver's list, which have the same sizes. A back
  // end that is given Options::nodes has it.
  virtual void do_transfer(Stream&, std::span<const Outgoing>, std::span<const Incoming>);
  // Whether do_all_gather() sends straight to all ranks, so that two levels save bytes between
  // nodes. A library with a ring does not.
  virtual bool gathers_directly() const { return true; }
  // Whether do_all_reduce() or do_reduce_scatter() has sums.
  virtual bool library_can_sum() const { return false; }
  virtual void do_broadcast(Stream&, Tensor inout, int root) = 0;
  virtual void do_shift(Stream&, Tensor out, ConstTensor in) = 0;
  virtual void do_send(Stream&, ConstTensor, int to) = 0;
  // The default is for back ends whose streams wait.
  virtual std::unique_ptr<Sent> do_start_send(Stream&, ConstTensor, int to);
  virtual void do_recv(Stream&, Tensor, int from) = 0;
  virtual void do_barrier() = 0;
  virtual std::unique_ptr<Communicator> do_split(int color, int key, Options options) = 0;
  // The default splits, and checks that the ranks agree.
  virtual std::unique_ptr<Communicator> do_subgroup(std::span<const int> members, Options options);
  // The library's sums, for groups without fixed order, and maxima, for all groups (the order of a
  // maximum does not matter). Typed tensors. Returns false if the library has no such operation.
  virtual bool do_all_reduce(Stream&, Tensor /*inout*/, Reduce) { return false; }
  virtual bool do_reduce_scatter(Stream&, Tensor /*out*/, ConstTensor /*in*/) { return false; }
  // Called around the work of a call. If do_begin() returns true, the back end itself marks the
  // recorder when the stream starts and completes the work. Otherwise the front marks it, on a
  // stream that cannot call the host when the work is queued.
  virtual bool do_begin(Stream&) { return false; }
  virtual void do_end(Stream&) {}
  // A graph that contains the call is launched again: as do_begin() and do_end(), without the work.
  virtual bool do_repeat(Stream&) { return false; }
  // Returns the texts of all ranks of the group, by rank. The host waits for all ranks.
  virtual std::vector<std::string> do_gather_texts(const std::string& text) = 0;
  // Back ends whose library has resources of the group; their destructors call close().
  virtual void do_close(End) noexcept {}
  // As abort(), with a verdict that all ranks have computed.
  virtual void do_abort(const std::string& verdict) noexcept { abort(verdict); }

  // A front's description of the call that begins.
  struct Operation {
    const char* op;
    ConstTensor in = {}, out = {};
    int peer = -1;
    bool is_message = false;
    const char* reduce = "";  // "sum", "max"
  };
  // Writes the recorder, in the order of the stream if it is not null, notifies the stream's
  // observers and calls `work`. A group of one only calls `work`.
  void perform(Stream*, const Operation&, const std::function<void()>& work);
  void enter(const Operation&);  // begins call_, and records it as scheduled
  // Records the call again: a graph that contains it is launched.
  void repeat(Stream&, const Operation&);
  FlightRecorder::Entry entry_of(const Operation&);
  device::StreamCall stream_call(const Operation&) const;  // of the call in progress
  // Debug mode: throws CommAborted on all ranks unless all have entered the same call.
  void compare(const Operation&);
  // As the virtual functions, with traffic counted; a group of one copies.
  void exchange(Stream&, Tensor out, const std::byte* in, int64_t stride_bytes, int64_t chunk_bytes,
                std::span<const int> from);
  void gather(Stream&, Tensor out, ConstTensor in);
  void gather_in_levels(Stream&, Tensor out, ConstTensor in);
  void transfer(Stream&, std::span<const Outgoing>, std::span<const Incoming>);
  // out = sum in the tree of all ranks' contributions for this rank, which are in the parts of
  // every rank at `stride_bytes` times this rank.
  void sum_into(Stream&, Tensor out, std::span<const ConstTensor> parts, const SumOrder& order,
                int64_t stride_bytes);
  // Returns how a sum of this order is computed in two levels; null: in one. Valid until the next
  // call.
  const spec::SumLevels* levels_of(const SumOrder& order);
  // sum_into() in two levels. REQUIRES: every rank receives another share (stride_bytes > 0).
  void sum_in_levels(Stream&, Tensor out, std::span<const ConstTensor> parts,
                     const spec::SumLevels& levels, int64_t stride_bytes);
  struct LevelsRound;
  void exchange_in_node(Stream&, const LevelsRound&, std::span<const std::byte* const> parts,
                        int64_t stride_bytes);
  static void sum_in_node(Stream&, const LevelsRound&);
  Tensor sum_between_nodes(Stream&, const LevelsRound&);
  // Adds up the slots in place; the result is in the first slot.
  static void run_tree(Stream&, std::span<const spec::TreeOp> program,
                       std::span<const Tensor> slots);
  void sum_everywhere(Stream&, Tensor out, std::span<const ConstTensor> parts,
                      const SumOrder& order);
  void max_everywhere(Stream&, Tensor inout);
  void check_send(ConstTensor in, int to) const;
  // Are both contiguous, of the same type and size, and apart?
  void check_moved(const char* op, ConstTensor out, ConstTensor in) const;
  void check_parts(const char* op, ConstTensor out, std::span<const ConstTensor> parts,
                   const SumOrder& order) const;
  bool library_sums(const SumOrder& order) const;
  // Returns how many of `bytes` fit into one round if the buffer must hold them `copies` times; a
  // multiple of `grain`, if not all.
  int64_t round_bytes(int64_t bytes, int64_t copies, int64_t grain) const;

  int rank_;
  std::vector<int> world_ranks_;
  Options options_;
  FlightRecorder& recorder_;
  const SumOrder own_order_;          // one leaf per rank
  const std::vector<int> all_ranks_;  // 0, 1, ... size() - 1
  // The ranks by node; none: sums and gathers have one level. This rank's place in it.
  std::optional<spec::NodeGrid> grid_;
  int node_ = 0, place_ = 0;
  int far_ranks_ = 0;  // on other nodes
  // The last order that levels_of() was asked for, and its answer.
  SumOrder known_order_;
  std::optional<spec::SumLevels> known_levels_;
  Tensor buffer_;
  Traffic traffic_;
  device::Wait wait_ = device::Wait::count;
  Call call_;
  bool is_closed_ = false;
  int64_t next_sequence_ = 0;
  std::vector<int64_t> sent_, received_;  // messages, by rank of the group
};

constexpr int64_t small_elements = spec::small_all_reduce_elements;

}  // namespace trireme::comm
