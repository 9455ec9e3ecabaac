// SPDX-License-Identifier: Apache-2.0
// Pipe: this rank's messages along pp. Every channel of the plan (spec::PipeChannel) has its own
// communicator, and its own stream on each end, so that no message waits behind one of another kind
// or to another rank, and neither host nor compute waits for a receiver.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "comm/mesh.h"
#include "device/device.h"
#include "device/memory.h"
#include "spec/parallel/data_parallel.h"
#include "spec/parallel/pipeline_parallel.h"
#include "spec/plan.h"

namespace trireme::engine {

class Pipe {
 public:
  // `mesh` null: one rank. Collective over the world. REQUIRES: the mesh is the plan's.
  Pipe(const spec::ModelSpec&, const spec::Plan&, comm::Mesh*, device::Device&,
       device::Stream& compute);
  ~Pipe();  // closes with End::abort, unless it is closed

  int rank() const { return rank_; }  // along pp
  bool has_peers() const { return group_ != nullptr; }

  // ---- between stages
  // Returns the send buffer for the next output (or input gradient) to rank `to`. Compute that is
  // queued from here on may write it. REQUIRES: send() follows before the next call for this
  // channel.
  device::Tensor outgoing(spec::PipeKind, int to);
  // Sends the buffer of outgoing() as compute has written it so far.
  void send(spec::PipeKind, int to);
  // Receives the next message directly into `to`, once `free` has happened. The event happens when
  // the message has arrived.
  device::Event receive(spec::PipeKind, int from, device::Tensor to, const device::Event& free);

  // The stream that receives messages from rank `from`.
  device::Stream& stream(spec::PipeKind kind, int from) {
    return *channel(kind, from, rank_).stream;
  }

  std::vector<device::Stream*> streams();  // of all channels of this rank

  // ---- other messages: tensors of the caller, without a send buffer
  // Sends what compute has written so far. `from` may be written again after the Sent.
  std::unique_ptr<comm::Sent> send_from(spec::PipeKind, int to, device::ConstTensor from);
  void receive_on(device::Stream&, spec::PipeKind, int from, device::Tensor to);

  // ---- for readers on the host. Collective along pp; wait for the device.
  // Returns the values of rank `owner` on every rank.
  std::vector<float> share(std::span<const float> values, int64_t elements, int owner);
  void share(device::Tensor, int owner);  // in place, on the compute stream

  // Takes the send buffers, and sends one message over every channel: some libraries connect with
  // the first message, for which the hosts wait for each other. Collective over the world.
  void set_memory(device::Arena& comm, const spec::PipeBuffers&);
  // Counts later messages as traffic outside of steps, if true.
  void count_as_other(bool is_other) { counts_as_other_ = is_other; }
  const spec::TrafficTable& traffic() const { return traffic_; }
  // Waits for all messages in flight; throws if one has failed.
  void synchronize();
  // Ends the channels, before memory is freed: no message is in flight then. Only the first close
  // counts. End::abort notifies the peers, who may be waiting for messages of this rank.
  void close(comm::End) noexcept;

 private:
  struct Channel {
    spec::PipeChannel of;
    std::unique_ptr<comm::Communicator> group;  // the sender is rank 0, the receiver rank 1
    std::unique_ptr<device::Stream> stream;
    std::vector<device::Tensor> buffers;
    std::vector<std::unique_ptr<comm::Sent>> sent;  // by buffer
    size_t next = 0;                                // the next buffer
  };

  void connect(const spec::ModelSpec&, const spec::Plan&, comm::Mesh&, device::Device&);
  Channel& channel(spec::PipeKind, int from, int to);
  std::unique_ptr<comm::Sent> start(Channel&, device::ConstTensor);

  device::Stream& compute_;
  int rank_ = 0;
  comm::Communicator* group_ = nullptr;  // all along pp; null: one rank
  std::vector<Channel> channels_;        // from or to this rank
  device::Tensor host_buffer_;           // for share()
  bool counts_as_other_ = false;
  bool is_closed_ = false;
  spec::TrafficTable traffic_;
};

}  // namespace trireme::engine
