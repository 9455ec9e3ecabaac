// SPDX-License-Identifier: Apache-2.0
// FaultyCommunicator: wraps a communicator and injects faults, to show that tests and `verify` find
// them, and delays, to show what overlaps. For tensors in host memory (CpuDevice).
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.h"

namespace trireme::comm {

struct Fault {
  enum class What : uint8_t {
    drop,         // data of other ranks is lost: zeros arrive
    doubled,      // received data counts twice
    scale,        // received data is multiplied by `factor`
    wrong_order,  // parts of ranks are shifted by one. Not for small all_reduces, which have none
    stale,        // the result of the previous call of the same size arrives (zeros if none)
    skip_wait,    // the result is read too early: the old contents of the memory remain
    absent,       // this rank does not enter the call and continues with the old contents
    resent,       // all data is sent twice; on all ranks of a group, or on none
    swapped,      // recv only: this message and the sender's next one are exchanged
    // The whole group, for all calls: an abort during a call ends it without an error, as it ends a
    // kernel of NCCL, and the old contents of the memory remain.
    silent_end,
    unflagged,  // the whole world: there are no abort flags
    delay,      // the call takes `seconds` + `seconds_per_byte` * bytes of a step longer
  };
  What what = What::drop;
  std::string op;       // "all_reduce", "all_gather", ...
  std::string group;    // name of the group; empty: all groups
  int64_t call = -1;    // index of the call of that op in that group, from 0; -1: all calls
  int world_rank = -1;  // the rank with the fault; -1: all ranks
  float factor = 1;
  double seconds = 0, seconds_per_byte = 0;
};

// Returns the name of a kind of fault: "drop".
std::string_view name_of(Fault::What);

class FaultyCommunicator final : public Communicator {
 public:
  // Groups that are split from it get the same faults. Sums and maxima that the library of the
  // inner communicator computes are passed on unchanged, and so are sums and gathers in two levels.
  FaultyCommunicator(std::unique_ptr<Communicator> inner, std::vector<Fault> faults);

  void abort(const std::string& reason) noexcept override { inner_->abort(reason); }
  AbortFlags* abort_flags() override {
    return has(Fault::What::unflagged) ? nullptr : inner_->abort_flags();
  }
  // Returns how often a fault was injected, in steps of calls.
  int64_t happened() const { return happened_; }

 private:
  void do_all_gather(Stream&, Tensor out, ConstTensor in) override;
  void do_exchange(Stream&, Tensor out, const std::byte* in, int64_t stride_bytes,
                   int64_t chunk_bytes, std::span<const int> from) override;
  void do_transfer(Stream&, std::span<const Outgoing>, std::span<const Incoming>) override;
  bool gathers_directly() const override { return inner_->gathers_directly(); }
  bool library_can_sum() const override { return inner_->library_can_sum(); }
  void do_broadcast(Stream&, Tensor inout, int root) override;
  void do_shift(Stream&, Tensor out, ConstTensor in) override;
  void do_send(Stream&, ConstTensor, int to) override;
  std::unique_ptr<Sent> do_start_send(Stream&, ConstTensor, int to) override;
  void do_recv(Stream&, Tensor, int from) override;
  void do_barrier() override;
  std::unique_ptr<Communicator> do_split(int color, int key, Options options) override;
  bool do_all_reduce(Stream&, Tensor inout, Reduce) override;
  bool do_reduce_scatter(Stream&, Tensor out, ConstTensor in) override;
  bool do_begin(Stream&) override;
  void do_end(Stream&) override;
  std::vector<std::string> do_gather_texts(const std::string& text) override;
  void do_close(End) noexcept override;
  void do_abort(const std::string& verdict) noexcept override;

  using Bytes = std::vector<std::byte>;
  // `out` holds the ranks' chunks side by side; `own` is the index of this rank's, -1 if none.
  struct Step {
    Tensor out;
    int64_t chunks = 1;
    int64_t own = -1;
  };
  // Returns the fault of the call in progress; null if it has none.
  const Fault* due();
  bool is_planted(Fault::What what) const;  // for this op, in this group, on this rank
  bool has(Fault::What what) const;         // for anything
  // Calls `inner`, which may end silently.
  void forward(const std::function<void()>& inner);
  // Runs `inner` with the fault of this call, if it has one.
  void with_fault(Stream&, const Step&, const std::function<void()>& inner);

  std::unique_ptr<Communicator> inner_;
  const std::vector<Fault> faults_;
  std::map<std::string, int64_t> calls_;  // number of calls of each op
  int64_t seen_record_ = -1;
  int64_t happened_ = 0;
  // The last results, by op and bytes. Shared with queued work.
  std::map<std::pair<std::string, int64_t>, std::shared_ptr<Bytes>> last_;
  std::shared_ptr<Bytes> held_;  // a message that is delivered after the next
};

}  // namespace trireme::comm
