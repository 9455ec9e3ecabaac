// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/nccl_communicator.h"

#include <fmt/format.h>

#include <cstring>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "comm/tensors.h"

namespace trireme::comm {
namespace {

ncclConfig_t config_of() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

std::optional<ncclDataType_t> type_of(base::DType dtype) {
  if (dtype == base::DType::f32) return ncclFloat32;
  if (dtype == base::DType::bf16) return ncclBfloat16;
  if (dtype == base::DType::f16) return ncclFloat16;
  return std::nullopt;
}

// Sends and receives of one call, which the library starts together.
class Transfers {
 public:
  Transfers(ncclComm_t comm, cudaStream_t stream) : comm_(comm), stream_(stream) {
    note(ncclGroupStart());
  }
  void send(int to, const std::byte* data, int64_t bytes) {
    note(ncclSend(data, static_cast<size_t>(bytes), ncclUint8, to, comm_, stream_));
  }
  void receive(int from, std::byte* data, int64_t bytes) {
    note(ncclRecv(data, static_cast<size_t>(bytes), ncclUint8, from, comm_, stream_));
  }
  // Ends the group, also after an error.
  ncclResult_t start() {
    const ncclResult_t end = ncclGroupEnd();
    return first_ == ncclSuccess ? end : first_;
  }

 private:
  void note(ncclResult_t result) {
    if (first_ == ncclSuccess && result != ncclInProgress) first_ = result;
  }

  ncclComm_t comm_;
  cudaStream_t stream_;
  ncclResult_t first_ = ncclSuccess;
};

}  // namespace

NcclCommunicator::NcclCommunicator(ProcessWorld& world, std::shared_ptr<NcclWatch> watch,
                                   std::shared_ptr<NcclHandle> handle, ProcessGroup group,
                                   Options options)
    : Communicator(group.rank, group.world_ranks, std::move(options), world.recorder()),
      world_(world),
      watch_(std::move(watch)),
      handle_(std::move(handle)),
      group_(std::move(group)) {
  TRIREME_CHECK((size() == 1) == (handle_ == nullptr), "group '{}' of {}", name(), size());
}

NcclCommunicator::~NcclCommunicator() { close(End::abort); }

void NcclCommunicator::do_close(End end) noexcept {
  if (handle_ != nullptr) {
    watch_->remove(*handle_);
    if (end == End::abort) {
      world_.await_abort_flags();
      handle_->abort();
    } else {
      handle_->finish();
    }
  }
  // With its last group the watch ends, and no synchronize() throws any more.
  watch_.reset();
}

std::shared_ptr<NcclHandle> NcclCommunicator::connect(ProcessWorld& world, NcclWatch& watch,
                                                      const ProcessGroup& group,
                                                      const Options& options) {
  if (group.size() == 1) return nullptr;
  const auto handle = std::make_shared<NcclHandle>(world, options.name, options.deadline_s);
  watch.add(handle);
  const std::string key = group.key + "/id";
  ncclUniqueId id = {};
  if (group.rank == 0) {
    const ncclResult_t made = ncclGetUniqueId(&id);
    if (made != ncclSuccess) {
      const std::string why = fmt::format("rank {}: NCCL cannot start: {}: {}", world.info().rank,
                                          ncclGetErrorString(made), ncclGetLastError(nullptr));
      world.abort(why);
      throw base::CommAborted(why);
    }
    world.store().set(key, std::string(id.internal, sizeof(id.internal)));
  } else {
    world.wait_for({&key, 1}, options.deadline_s);
    const std::string text = world.store().try_get(key).value_or("");
    if (text.size() != sizeof(id.internal)) {
      const std::string why =
          fmt::format("rank {}: the store's '{}' has {} bytes; an id of NCCL has {}",
                      world.info().rank, key, text.size(), sizeof(id.internal));
      world.abort(why);
      throw base::CommAborted(why);
    }
    std::memcpy(id.internal, text.data(), text.size());
  }
  ncclConfig_t config = config_of();
  handle->connect(id, group.rank, group.size(), config);
  return handle;
}

void NcclCommunicator::abort(const std::string& reason) noexcept { world_.abort(reason); }

device::CudaStream& NcclCommunicator::checked(Stream& stream) const {
  auto* cuda_stream = dynamic_cast<device::CudaStream*>(&stream);
  if (cuda_stream == nullptr) {
    throw base::ConfigError(
        fmt::format("group '{}': NCCL moves GPU memory, but stream '{}' is not a GPU's; use Gloo",
                    name(), stream.name()));
  }
  return *cuda_stream;
}

bool NcclCommunicator::do_begin(Stream& stream) {
  device::CudaStream& queue = checked(stream);
  // Announced now, because the host may block on a peer below. A call that is being captured is
  // announced with its end: the capture may be given up.
  if (!queue.is_capturing()) {
    watch_->prepare_ticks(queue);
    do_repeat(stream);
  }
  watch_->tick(queue, NcclWatch::Tick::begin);
  return true;
}

void NcclCommunicator::do_end(Stream& stream) {
  watch_->tick(checked(stream), NcclWatch::Tick::end);
  if (stream.is_capturing()) do_repeat(stream);
}

bool NcclCommunicator::do_repeat(Stream& stream) {
  watch_->watch(checked(stream), call().record_id, options().deadline_s);
  return true;
}

void NcclCommunicator::do_all_gather(Stream& stream, Tensor out, ConstTensor in) {
  const cudaStream_t queue = checked(stream).handle();
  handle_->run("ncclAllGather", [&](ncclComm_t& comm) {
    return ncclAllGather(in.data, out.data, static_cast<size_t>(in.bytes()), ncclUint8, comm,
                         queue);
  });
}

void NcclCommunicator::do_exchange(Stream& stream, Tensor out, const std::byte* in,
                                   int64_t stride_bytes, int64_t chunk_bytes,
                                   std::span<const int> from) {
  const cudaStream_t queue = checked(stream).handle();
  handle_->run("ncclSend and ncclRecv", [&](ncclComm_t& comm) {
    Transfers transfers(comm, queue);
    for (size_t i = 0; i < from.size(); ++i) {
      if (from[i] == rank()) continue;
      transfers.receive(from[i], out.data + static_cast<int64_t>(i) * chunk_bytes, chunk_bytes);
    }
    for (int to = 0; to < size() && in != nullptr; ++to) {
      if (to != rank()) transfers.send(to, in + to * stride_bytes, chunk_bytes);
    }
    return transfers.start();
  });
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i] != rank()) continue;
    stream.copy_bytes(bytes_at(out.data + static_cast<int64_t>(i) * chunk_bytes, chunk_bytes),
                      bytes_at(in + rank() * stride_bytes, chunk_bytes));
  }
}

void NcclCommunicator::do_transfer(Stream& stream, std::span<const Outgoing> sends,
                                   std::span<const Incoming> receives) {
  const cudaStream_t queue = checked(stream).handle();
  handle_->run("ncclSend and ncclRecv", [&](ncclComm_t& comm) {
    Transfers transfers(comm, queue);
    for (const Incoming& one : receives) transfers.receive(one.from, one.data, one.bytes);
    for (const Outgoing& one : sends) transfers.send(one.to, one.data, one.bytes);
    return transfers.start();
  });
}

void NcclCommunicator::do_shift(Stream& stream, Tensor out, ConstTensor in) {
  const cudaStream_t queue = checked(stream).handle();
  handle_->run("ncclSend and ncclRecv", [&](ncclComm_t& comm) {
    Transfers transfers(comm, queue);
    transfers.receive((rank() + size() - 1) % size(), out.data, out.bytes());
    transfers.send((rank() + 1) % size(), in.data, in.bytes());
    return transfers.start();
  });
}

void NcclCommunicator::do_broadcast(Stream& stream, Tensor inout, int root) {
  const cudaStream_t queue = checked(stream).handle();
  handle_->run("ncclBroadcast", [&](ncclComm_t& comm) {
    return ncclBroadcast(inout.data, inout.data, static_cast<size_t>(inout.bytes()), ncclUint8,
                         root, comm, queue);
  });
}

void NcclCommunicator::do_send(Stream& stream, ConstTensor tensor, int to) {
  const cudaStream_t queue = checked(stream).handle();
  handle_->run("ncclSend", [&](ncclComm_t& comm) {
    return ncclSend(tensor.data, static_cast<size_t>(tensor.bytes()), ncclUint8, to, comm, queue);
  });
}

void NcclCommunicator::do_recv(Stream& stream, Tensor tensor, int from) {
  const cudaStream_t queue = checked(stream).handle();
  handle_->run("ncclRecv", [&](ncclComm_t& comm) {
    return ncclRecv(tensor.data, static_cast<size_t>(tensor.bytes()), ncclUint8, from, comm, queue);
  });
}

bool NcclCommunicator::do_all_reduce(Stream& stream, Tensor inout, Reduce reduce) {
  const auto type = type_of(inout.dtype);
  if (!type) return false;
  const cudaStream_t queue = checked(stream).handle();
  handle_->run("ncclAllReduce", [&](ncclComm_t& comm) {
    return ncclAllReduce(inout.data, inout.data, static_cast<size_t>(inout.elements()), *type,
                         reduce == Reduce::sum ? ncclSum : ncclMax, comm, queue);
  });
  return true;
}

bool NcclCommunicator::do_reduce_scatter(Stream& stream, Tensor out, ConstTensor in) {
  const auto type = type_of(out.dtype);
  if (!type) return false;
  const cudaStream_t queue = checked(stream).handle();
  handle_->run("ncclReduceScatter", [&](ncclComm_t& comm) {
    return ncclReduceScatter(in.data, out.data, static_cast<size_t>(out.elements()), *type, ncclSum,
                             comm, queue);
  });
  return true;
}

// The hosts rendezvous in the store: a kernel would wait for a stream.
void NcclCommunicator::do_barrier() {
  store_barrier(world_, group_, {"barrier", barriers_++, options().deadline_s});
}

std::vector<std::string> NcclCommunicator::do_gather_texts(const std::string& text) {
  return gather_texts(world_, group_, {"debug", texts_gathered_++, options().deadline_s}, text);
}

std::unique_ptr<Communicator> NcclCommunicator::do_split(int color, int key, Options options) {
  const SyncPoint point = {"split", splits_++, this->options().deadline_s, true};
  GroupSplit split = split_group(world_, group_, point, color, key);
  std::shared_ptr<NcclHandle> handle;
  // All ranks of the parent take part, also those that form a subgroup of one.
  if (split.largest > 1) {
    const bool is_alone = split.subgroup.size() == 1;
    handle = std::make_shared<NcclHandle>(world_, options.name, options.deadline_s);
    watch_->add(handle);
    handle_->run(
        "ncclCommSplit",
        [&](ncclComm_t& comm) {
          ncclConfig_t config = config_of();
          return ncclCommSplit(comm, is_alone ? NCCL_SPLIT_NOCOLOR : split.color_index,
                               split.subgroup.rank, handle->place(), &config);
        },
        NcclHandle::Waits::connecting);
    if (is_alone) {
      watch_->remove(*handle);
      handle.reset();
    } else {
      handle->adopt();
    }
  }
  return std::make_unique<NcclCommunicator>(world_, watch_, std::move(handle),
                                            std::move(split.subgroup), std::move(options));
}

}  // namespace trireme::comm
