// SPDX-License-Identifier: Apache-2.0
// A group of processes over NCCL. Every group has its own NCCL communicator, split from its
// parent's; one thread of the process (NcclWatch) watches all of them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/nccl/nccl_handle.h"
#include "comm/nccl/nccl_watch.h"
#include "comm/world/process_group.h"
#include "device/cuda/cuda_device.h"

namespace trireme::comm {

class NcclCommunicator final : public Communicator {
 public:
  // `handle` is connected; null in a group of one.
  NcclCommunicator(ProcessWorld& world, std::shared_ptr<NcclWatch> watch,
                   std::shared_ptr<NcclHandle> handle, ProcessGroup group, Options options);
  ~NcclCommunicator() override;

  // Connects all ranks of the group, which rendezvous through the store. Null for a group of one.
  static std::shared_ptr<NcclHandle> connect(ProcessWorld& world, NcclWatch& watch,
                                             const ProcessGroup& group, const Options& options);

  void abort(const std::string& reason) noexcept override;
  AbortFlags* abort_flags() override { return &world_.abort_flags(); }
  bool can_be_captured() const override { return !options().debug; }

 private:
  void do_all_gather(Stream&, Tensor out, ConstTensor in) override;
  void do_exchange(Stream&, Tensor out, const std::byte* in, int64_t stride_bytes,
                   int64_t chunk_bytes, std::span<const int> from) override;
  void do_transfer(Stream&, std::span<const Outgoing>, std::span<const Incoming>) override;
  bool gathers_directly() const override { return false; }
  bool library_can_sum() const override { return true; }
  void do_broadcast(Stream&, Tensor inout, int root) override;
  void do_shift(Stream&, Tensor out, ConstTensor in) override;
  void do_send(Stream&, ConstTensor, int to) override;
  void do_recv(Stream&, Tensor, int from) override;
  void do_barrier() override;
  std::unique_ptr<Communicator> do_split(int color, int key, Options options) override;
  bool do_all_reduce(Stream&, Tensor inout, Reduce) override;
  bool do_reduce_scatter(Stream&, Tensor out, ConstTensor in) override;
  bool do_begin(Stream&) override;
  void do_end(Stream&) override;
  bool do_repeat(Stream&) override;
  std::vector<std::string> do_gather_texts(const std::string& text) override;
  void do_close(End) noexcept override;

  // Throws ConfigError unless the stream is a GPU's.
  device::CudaStream& checked(Stream&) const;

  ProcessWorld& world_;
  std::shared_ptr<NcclWatch> watch_;    // shared by all groups of the process
  std::shared_ptr<NcclHandle> handle_;  // shared with the watch
  const ProcessGroup group_;
  int64_t splits_ = 0, barriers_ = 0, texts_gathered_ = 0;
};

}  // namespace trireme::comm
