// SPDX-License-Identifier: Apache-2.0
// FaultyCommunicator: another communicator with planted faults, to show that tests and `verify`
// find them; and with delays, to show what overlaps. For tensors in host memory (CpuDevice).
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
    drop,         // nothing arrives from other ranks: zeros take its place
    doubled,      // all that arrives counts twice
    scale,        // all that arrives is multiplied by `factor`
    wrong_order,  // parts of ranks are one place off. Not for small all_reduces, which have none
    stale,        // the result of the call before with as many bytes arrives again (zeros: none)
    skip_wait,    // the result is not there yet: what was in memory before is read
    absent,       // this rank does not come; it goes on with what was in memory before
    resent,       // everything is sent a second time; on all ranks of a group, or none
    swapped,      // of recv: this message and the next of the sender change places
    delay,        // it takes `seconds` + `seconds_per_byte` times the bytes of a step longer
  };
  What what = What::drop;
  std::string op;       // "all_reduce", "all_gather", ...
  std::string group;    // name of the group; empty: all groups
  int64_t call = -1;    // which call of that op in that group, from 0; -1: every one
  int world_rank = -1;  // where it happens; -1: on all ranks
  float factor = 1;
  double seconds = 0, seconds_per_byte = 0;
};

// Name of a kind of fault, as in the comments above.
std::string_view name_of(Fault::What);

class FaultyCommunicator final : public Communicator {
 public:
  // Groups that are split off get the same faults. Sums and maxima that the inner one's library
  // takes are passed on as they are.
  FaultyCommunicator(std::unique_ptr<Communicator> inner, std::vector<Fault> faults);

  void abort(const std::string& reason) noexcept override { inner_->abort(reason); }
  // How often a fault happened here, in steps of calls.
  int64_t happened() const { return happened_; }

 private:
  void do_all_gather(Stream&, Tensor out, ConstTensor in) override;
  void do_exchange(Stream&, Tensor out, const std::byte* in, int64_t stride_bytes,
                   int64_t chunk_bytes, std::span<const int> from) override;
  void do_broadcast(Stream&, Tensor inout, int root) override;
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
  void do_abort(const std::string& verdict) noexcept override;

  using Bytes = std::vector<std::byte>;
  // `out` as the ranks' chunks side by side; `own` is the chunk of this rank, -1 if there is none.
  struct Step {
    Tensor out;
    int64_t chunks = 1;
    int64_t own = -1;
  };
  // The fault of the call that is being made; null if it is healthy.
  const Fault* due();
  bool is_planted(Fault::What what) const;  // for this op, in this group, on this rank
  // Runs `inner` with the fault of this call, if there is one, around it.
  void with_fault(Stream&, const Step&, const std::function<void()>& inner);

  std::unique_ptr<Communicator> inner_;
  const std::vector<Fault> faults_;
  std::map<std::string, int64_t> calls_;  // of each op
  int64_t seen_record_ = -1;
  int64_t happened_ = 0;
  // Last results, by op and bytes. Shared with queued work.
  std::map<std::pair<std::string, int64_t>, std::shared_ptr<Bytes>> last_;
  std::shared_ptr<Bytes> held_;  // a message that comes after the next
};

}  // namespace trireme::comm
