// SPDX-License-Identifier: Apache-2.0
// Buckets: all buckets of a rank, one per layer, and their way over the data axes: gather, release,
// zero and reduce as the scripts ask, one bucket at a time, on the data stream beside the compute
// stream. Plain data parallel, ZeRO-1, -2, -3 and HSDP are this one code; the plan's residency
// decides which tensors of a Bucket are the same memory.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "device/memory.h"
#include "engine/state/bucket.h"
#include "engine/state/data_groups.h"
#include "engine/state/shared_table.h"
#include "engine/state/tensor_group.h"
#include "engine/step/pipe.h"
#include "optim/flat_floats.h"
#include "spec/model.h"
#include "spec/parallel/data_parallel.h"

namespace trireme::engine {

class Buckets {
 public:
  struct Memory {
    device::Arena& params;
    device::Arena& grads;
    device::Arena& comm;
    std::span<const device::Tensor> leaves;  // by bucket: for gradients, or absent
  };
  // Of all layers of the rank's stages, in order.
  Buckets(const spec::ModelSpec&, const spec::Plan&, DataGroups&, TensorGroup&, Pipe&,
          const Memory&);

  int size() const { return static_cast<int>(buckets_.size()); }
  const Bucket& operator[](int bucket) const { return buckets_[static_cast<size_t>(bucket)]; }
  std::vector<Bucket>::const_iterator begin() const { return buckets_.begin(); }
  std::vector<Bucket>::const_iterator end() const { return buckets_.end(); }
  SharedTable& table() { return *table_; }
  // Of layer `layer` of the model. REQUIRES: it is on this rank.
  int index_of_layer(int layer) const;

  // ---- steps of scripts
  void gather(int bucket);
  void release(int bucket);  // all queued compute may still read it
  // A leaf begins: gradients that need it are set to zero (Param::is_written: not those), and what
  // is queued from here on may write all of them.
  void zero(int bucket);
  // The bucket's leaf is complete: folds it, and with a rank's last leaf of a round reduces. After
  // the last round own_grads() has, or will have on the data stream, the sum over all workers.
  void reduce(int bucket, const spec::Leaf&);
  // Compute that is queued from here on finds the whole parameters.
  void use(int bucket);
  // Compute that is queued from here on finds all reduced gradients.
  void await_reduced() { groups_.before_compute(); }

  // ---- changes of own_params(), on the compute stream
  // No rank reads the old ones any more.
  void before_change(int bucket) { table_->before_change(bucket); }
  void publish(int bucket);  // brings the new ones to where they are read
  // Parameters have changed on some rank. All ranks call it.
  void weights_changed() { table_->set_stale(); }

  // ---- updates that wait for their gradients. Where every rank updates everything (plain data
  // parallel), a bucket is updated just before the next forward comes to it, and gradients of most
  // buckets are gathered during that forward: all but those that the backward comes to first, whose
  // gathering the backward has time for.
  bool defers_updates() const { return defers_updates_; }
  // `update` queues the update of a bucket on the compute stream.
  void set_update(std::function<void(int bucket)> update) { update_ = std::move(update); }
  // The bucket's update is due when it is next used. Queues the gathering of its gradients, unless
  // the backward did.
  void defer_update(int bucket);
  // Queues all updates that are due.
  void flush_updates();

  // own_grads() is complete afterwards, for readers. Collective.
  void complete_grads(int bucket);
  // The whole bucket in fp32, from what each rank along zero holds of it (own_params(),
  // own_grads(), or a tensor of the optimizer). Waits for the device. Collective.
  std::vector<float> read_whole(int bucket, const optim::FlatFloats& own);

 private:
  // The bytes of all ranks along zero, of which this one holds `own`.
  std::vector<std::byte> read_whole(const device::Tensor& own, int64_t whole_bytes);
  Bucket& at(int bucket) { return buckets_[static_cast<size_t>(bucket)]; }
  size_t work_slot(int bucket) const;
  void sum_along_tp(int bucket);
  // The share is measured (bench/overlap.sh).
  bool gathers_in_forward(int bucket) const { return defers_updates_ && bucket < size() * 4 / 5; }
  void run_update(int bucket);  // if it is due
  void finish_round(int bucket, int round, std::span<const device::ConstTensor> nodes,
                    device::Tensor part);

  DataGroups& groups_;
  TensorGroup& tensor_;
  const spec::Residency residency_;
  const int hosted_, rounds_;
  const bool defers_updates_;
  std::function<void(int bucket)> update_;
  std::vector<spec::Fold> folds_;  // by hosted worker
  spec::DataBuffers buffers_;
  device::Tensor rounded_;
  std::vector<device::Tensor> work_, gathered_;
  std::vector<int> layers_;  // of the model, by bucket
  std::vector<Bucket> buckets_;
  std::optional<SharedTable> table_;

  // ---- order between the streams
  std::vector<device::Event> written_;   // by bucket: own_params(), on compute
  std::vector<device::Event> arrived_;   // by bucket: whole_params(), on the data stream
  std::vector<device::Event> released_;  // by gather slot: on compute
  std::vector<device::Event> due_;       // by bucket: gradients to update with, on the data stream
  std::vector<uint8_t> is_due_;          // by bucket
  std::vector<device::Event> reduced_;   // by work slot: leaf read, on the data stream
  std::vector<int> holds_;               // by gather slot: its bucket, or -1
};

}  // namespace trireme::engine
