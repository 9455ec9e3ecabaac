// SPDX-License-Identifier: Apache-2.0
// Communicator: one rank's handle on one group of ranks. Work is ordered by the stream it is given,
// like a kernel; all ranks of a group make the same calls in the same order. Public calls check
// sizes and overlap, count bytes, write the flight recorder and then call a private virtual of the
// back end (threads/, gloo/, nccl/).
//
// A call that is not complete after the group's deadline aborts the group; abort() wakes every
// waiter on every rank, and from then on every call throws CommAborted. Where work runs later than
// the call (worker streams, GPUs) the exception comes out of the stream's synchronize() or of the
// next call.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/failure/flight_recorder.h"
#include "device/device.h"
#include "device/memory.h"
#include "spec/facts/comm_cost.h"
#include "spec/parallel/shard.h"

namespace trireme::comm {

using device::ConstTensor;
using device::Stream;
using device::Tensor;

enum class Reduce : uint8_t { sum, max };

// Bytes that this rank sent to others, by what for.
struct Traffic {
  int64_t calls = 0;
  int64_t bytes = 0;
};

// In which order the sums of a group are taken (spec/parallel/sum_tree.h): `leaves` workers, of
// which rank r of the group brings the nodes `parts[r]`. Together they are all leaves; the order of
// the ranks need not be that of the leaves. The default of a group: one leaf a rank.
struct SumOrder {
  int64_t leaves = 0;
  std::vector<std::vector<spec::Range>> parts;

  static SumOrder one_leaf_each(int ranks);
  // `leaves` workers hosted in equal shares.
  static SumOrder hosted(int64_t leaves, int ranks);
};

// A message that was sent and may not have arrived yet.
class Sent {
 public:
  virtual ~Sent() = default;
  // Work that is queued on the stream from here on may write the tensor that was sent.
  virtual void wait(Stream&) = 0;
};

class Communicator {
 public:
  struct Options {
    std::string name;         // of the group, for messages: "tp", "zero of stage 0"
    double deadline_s = 600;  // of one call, from when this rank comes to it
    bool fixed_order = true;  // sums in the tree; false: the library's order, where it has one
    // Before each collective the ranks tell each other what they are about to call; the first that
    // does not fit is named on every rank and aborts the group. Every call then waits on the host.
    bool debug = false;
  };

  Communicator(int rank, std::vector<int> world_ranks, Options options, FlightRecorder& recorder);
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(world_ranks_.size()); }
  const std::string& name() const { return options_.name; }
  const Options& options() const { return options_; }
  // Ranks of the world, by rank of the group.
  const std::vector<int>& world_ranks() const { return world_ranks_; }

  // ---- collectives. Tensors are contiguous; a group of one copies or does nothing. What each adds
  // to this rank's traffic stands beside it: N = size(), b = bytes of one part.
  // inout = sum or max over ranks, the same bits on all. Sums in the type of the tensor, f32 or
  // bf16; maxima of f32 (on host memory, or where the library has them).
  // 2 (N-1)/N b for the largest head that divides by N, (N-1) b for the rest; (N-1) b for all of it
  // below small_elements and for a max.
  void all_reduce(Stream&, Tensor inout, Reduce);
  // out = in of rank 0, in of rank 1, ... `in` may be this rank's part of out. (N-1) b.
  void all_gather(Stream&, Tensor out, ConstTensor in);
  // out = this rank's part of the sum over ranks of `in`, rounded to the type of `in` at every
  // node. out has the type of `in` and may be this rank's part of it. (N-1)/N b.
  void reduce_scatter(Stream&, Tensor out, ConstTensor in);
  // The same where ranks bring several partial sums, each as large as `in` was: `order` says which.
  // out may be this rank's part of one of them. (N-1)/N b for each part of this rank.
  void reduce_scatter(Stream&, Tensor out, std::span<const ConstTensor> parts,
                      const SumOrder& order);
  // All parts of the sum on every rank; out may be one of the parts. For b large enough as
  // all_reduce, the first half of it for each part of this rank.
  void all_reduce(Stream&, Tensor out, std::span<const ConstTensor> parts, const SumOrder& order);
  // (N-1) b on the root.
  void broadcast(Stream&, Tensor inout, int root);
  // Row blocks of `capacity` rows: block r of `in` goes to rank r, which puts it at its block
  // rank(). Only the first counts_out[r] rows of block r matter; counts (device, [size] i32) travel
  // along. Rows beyond the count are anything. Whole blocks travel: (N-1)/N b + 4 (N-1).
  void all_to_all(Stream&, Tensor out, Tensor counts_in, ConstTensor in, ConstTensor counts_out,
                  int64_t capacity);
  // Messages between two ranks arrive in the order of the calls, whatever streams they are on. b,
  // on the sender.
  void send(Stream&, ConstTensor, int to);
  // As send(), but neither the host nor later work on the stream need wait for the receiver: Sent
  // says when the tensor may be written. The Sent must not outlive the communicator; one that is
  // dropped without wait() before the receiver came makes the receiver fail. Between processes the
  // stream must be one whose work does not hold up the host (Device::make_side_stream), and a
  // stream that sends carries nothing that the receiver may need first.
  std::unique_ptr<Sent> start_send(Stream&, ConstTensor, int to);
  void recv(Stream&, Tensor, int from);
  // The host waits until every rank's host is here. No stream is waited for.
  void barrier();

  // Any thread, any time. `reason` is told to every rank.
  virtual void abort(const std::string& reason) noexcept = 0;

  // Of the ranks with the same color, ordered by key, then by rank. Collective. Debug mode is
  // passed on.
  std::unique_ptr<Communicator> split(int color, int key, Options options);

  // Scratch for received parts: sums are taken in as many rounds as it needs. Not owned. REQUIRES,
  // for sums in the tree over more than one part: at least 256 bytes for every part of all ranks.
  // Calls that sum share it: they are on one stream, or ordered by events.
  void set_buffer(Tensor buffer) { buffer_ = buffer; }

  const Traffic& traffic() const { return traffic_; }

 protected:
  // The public call that is being made, for messages and deadlines. Work that runs later than the
  // call keeps a copy.
  struct Call {
    const char* op = "";   // "all_reduce", ...
    int64_t sequence = 0;  // of collectives: in this group; of send and recv: between the two ranks
    int peer = -1;         // of send and recv, rank of the group; root of a broadcast
    base::DType dtype = base::DType::u8;
    int64_t bytes = 0;  // of the tensor that the caller named
    int64_t record_id = 0;
    std::chrono::steady_clock::time_point deadline;
  };
  const Call& call() const { return call_; }
  FlightRecorder& recorder() { return recorder_; }
  static std::chrono::steady_clock::time_point deadline_after(double seconds);
  // Of a message that the receiver has at `event`.
  static std::unique_ptr<Sent> sent_at(device::Event event);

 private:
  friend class FaultyCommunicator;  // it puts itself between the fronts and a back end

  // ---- what a back end does. Byte tensors; checked; size() > 1, except for do_split.
  virtual void do_all_gather(Stream&, Tensor out, ConstTensor in) = 0;
  // Each of the ranks `from` (in ascending order) sends chunk r of its `in` to every rank r, itself
  // included. Chunk r is at in + r * stride_bytes and is chunk_bytes long; a stride of 0 gives all
  // the same. out gets the chunks of the ranks `from` one after the other. On a rank that is not
  // among them `in` is null. out overlaps no rank's input.
  virtual void do_exchange(Stream&, Tensor out, const std::byte* in, int64_t stride_bytes,
                           int64_t chunk_bytes, std::span<const int> from) = 0;
  virtual void do_broadcast(Stream&, Tensor inout, int root) = 0;
  virtual void do_send(Stream&, ConstTensor, int to) = 0;
  // The default is for back ends whose streams do the waiting.
  virtual std::unique_ptr<Sent> do_start_send(Stream&, ConstTensor, int to);
  virtual void do_recv(Stream&, Tensor, int from) = 0;
  virtual void do_barrier() = 0;
  virtual std::unique_ptr<Communicator> do_split(int color, int key, Options options) = 0;
  // The library's own sums and maxima: sums of groups without fixed order, maxima of all groups (a
  // maximum has no order). Typed tensors. False: there are none.
  virtual bool do_all_reduce(Stream&, Tensor /*inout*/, Reduce) { return false; }
  virtual bool do_reduce_scatter(Stream&, Tensor /*out*/, ConstTensor /*in*/) { return false; }
  // Around the work of a call on a stream that cannot call the host. True: the back end marks the
  // recorder itself, when the stream gets there and when the work is complete. False: it was queued
  // is all that is known.
  virtual bool do_begin(Stream&) { return false; }
  virtual void do_end(Stream&) {}
  // What every rank of the group says of the collective that it has come to, by rank. The host
  // waits for all.
  virtual std::vector<std::string> do_gather_texts(const std::string& text) = 0;
  // As abort(), with the verdict as all ranks have found it.
  virtual void do_abort(const std::string& verdict) noexcept { abort(verdict); }

  // What a front tells of the call that begins.
  struct Operation {
    const char* op;
    ConstTensor in = {}, out = {};
    int peer = -1;
    bool is_message = false;
    const char* reduce = "";  // "sum", "max"
  };
  // Writes the recorder, in the stream's order where there is one, and calls `work`. A group of one
  // only does the work.
  void perform(Stream*, const Operation&, const std::function<void()>& work);
  FlightRecorder::Entry entry_of(const Operation&);
  // Debug mode: throws CommAborted, on all ranks, unless all have come to the same call.
  void compare(const Operation&);
  // As the virtuals, counted; a group of one copies.
  void exchange(Stream&, Tensor out, const std::byte* in, int64_t stride_bytes, int64_t chunk_bytes,
                std::span<const int> from);
  void gather(Stream&, Tensor out, ConstTensor in);
  // out = sum in the tree of what all ranks bring for this rank, which rank q has at `stride_bytes`
  // times this rank in its parts.
  void sum_into(Stream&, Tensor out, std::span<const ConstTensor> parts, const SumOrder& order,
                int64_t stride_bytes);
  void sum_everywhere(Stream&, Tensor out, std::span<const ConstTensor> parts,
                      const SumOrder& order);
  void max_everywhere(Stream&, Tensor inout);
  void check_send(ConstTensor in, int to) const;
  void check_parts(const char* op, ConstTensor out, std::span<const ConstTensor> parts,
                   const SumOrder& order) const;
  bool library_sums(const SumOrder& order) const;
  // How much of `bytes` can be worked on at once when the buffer must hold it `copies` times.
  int64_t round_bytes(int64_t bytes, int64_t copies) const;

  int rank_;
  std::vector<int> world_ranks_;
  Options options_;
  FlightRecorder& recorder_;
  const SumOrder own_order_;          // one leaf a rank
  const std::vector<int> all_ranks_;  // 0, 1, ... size() - 1
  Tensor buffer_;
  Traffic traffic_;
  Call call_;
  int64_t next_sequence_ = 0;
  std::vector<int64_t> sent_, received_;  // messages, by rank of the group
};

constexpr int64_t small_elements = spec::small_all_reduce_elements;

}  // namespace trireme::comm
