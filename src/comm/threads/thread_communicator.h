// SPDX-License-Identifier: Apache-2.0
// A rank's handle on a group of thread ranks. The host threads rendezvous at the call. Bytes move
// on the streams: each rank copies what it needs out of the others' memory, ordered by events. The
// host never waits for a stream, so no stream can delay a rendezvous; and every event that a stream
// waits for was queued before the wait, so streams cannot wait in a cycle.
//
// Messages on a worker stream rendezvous in the stream, when it reaches them, and the host does not
// wait. There the caller must order calls so that streams do not wait in a cycle. On other streams
// the receiver's host waits for the sender's, and the sender's host waits in Sent::wait().
#pragma once

#include <functional>

#include "comm/communicator.h"
#include "comm/threads/rendezvous_point.h"

namespace trireme::comm {

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(ThreadGroup& thread_group, RendezvousPoint& point, int rank, Options options,
                     double world_deadline_s);

  void abort(const std::string& reason) noexcept override;
  AbortFlags* abort_flags() override { return &thread_group_.abort_flags(); }

 private:
  void do_all_gather(Stream&, Tensor out, ConstTensor in) override;
  void do_exchange(Stream&, Tensor out, const std::byte* in, int64_t stride_bytes,
                   int64_t chunk_bytes, std::span<const int> from) override;
  void do_transfer(Stream&, std::span<const Outgoing>, std::span<const Incoming>) override;
  void do_broadcast(Stream&, Tensor inout, int root) override;
  void do_shift(Stream&, Tensor out, ConstTensor in) override;
  void do_send(Stream&, ConstTensor, int to) override;
  std::unique_ptr<Sent> do_start_send(Stream&, ConstTensor, int to) override;
  void do_recv(Stream&, Tensor, int from) override;
  bool do_begin(Stream&) override;
  void do_barrier() override;
  std::unique_ptr<Communicator> do_split(int color, int key, Options options) override;
  std::vector<std::string> do_gather_texts(const std::string& text) override;
  void do_abort(const std::string& verdict) noexcept override;

  class PostedSend;

  Caller make_caller(int64_t step_bytes) const;
  // Publishes `source` to all ranks, queues the copies and lets the stream wait until all ranks
  // have copied.
  void move(Stream&, Slot source, int64_t step_bytes,
            const std::function<void(const std::vector<Slot>& published)>& queue_copies);

  ThreadGroup& thread_group_;
  RendezvousPoint& point_;
  const double world_deadline_s_;
  int64_t splits_ = 0;
};

}  // namespace trireme::comm
