// SPDX-License-Identifier: Apache-2.0
// Buckets: all buckets of a rank, one for each layer and view of its parameters, and their
// communication over the axes of the view.
// Scripts call gather, release, zero and reduce, one bucket at a time; the work runs on the data
// stream beside the compute stream. Plain data parallelism, ZeRO-1, -2, -3 and HSDP share this
// code; the plan's residency decides which tensors of a Bucket alias.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "device/memory.h"
#include "engine/groups/data_groups.h"
#include "engine/groups/tensor_group.h"
#include "engine/state/bucket.h"
#include "engine/state/shared_table.h"
#include "engine/state/update_gate.h"
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
    std::span<const device::Tensor> leaves;  // by bucket: memory for gradients, or absent
  };
  // Makes the buckets of all layers of the rank's stages, in order.
  Buckets(const spec::ModelSpec&, const spec::Plan&, DataGroups&, TensorGroup&, Pipe&,
          const UpdateGate&, const Memory&);

  int size() const { return static_cast<int>(buckets_.size()); }
  const Bucket& operator[](int bucket) const { return buckets_[static_cast<size_t>(bucket)]; }
  std::vector<Bucket>::const_iterator begin() const { return buckets_.begin(); }
  std::vector<Bucket>::const_iterator end() const { return buckets_.end(); }
  SharedTable& table() { return *table_; }
  // ---- by layer of the model. REQUIRES: the layer is on this rank
  spec::Range of_layer(int layer) const;  // its buckets
  // By the layer's parameter enum, from all its buckets; parameters that it does not have are
  // empty.
  std::span<const device::Tensor> params(int layer) const;
  std::span<const device::Tensor> grads(int layer) const;
  const spec::BucketKey& key(int bucket) const { return keys_[static_cast<size_t>(bucket)]; }

  // ---- steps of scripts
  void gather(int bucket);
  void release(int bucket);  // compute that is queued so far may still read it
  // Begins a leaf: sets gradients to zero, except those that are overwritten (Param::is_written).
  // Compute that is queued from here on may write all of them.
  void zero(int bucket);
  // Ends a leaf: folds it into the rank's sum, and reduces with the rank's last leaf of a round.
  // After the last round own_grads() holds the sum over all workers, in the order of the data
  // stream.
  void reduce(int bucket, const spec::Leaf&);
  // Compute that is queued from here on reads the whole parameters.
  void use(int bucket);
  // Compute that is queued from here on reads all reduced gradients.
  void await_reduced() { groups_.before_compute(); }

  // ---- changes of own_params(), on the compute stream
  // Compute that is queued from here on may overwrite them.
  void before_change(int bucket) { table_->before_change(bucket); }
  void publish(int bucket);  // sends the new ones to the ranks that read them
  // Parameters have changed on some rank. All ranks call it.
  void weights_changed() { table_->set_stale(); }

  // ---- deferred updates. If every rank updates everything on its own (plain data parallelism with
  // AdamW), a bucket is
  // updated just before the next forward uses it, and the gradients of most buckets are gathered
  // during that forward. The buckets that the backward finishes first are gathered during the
  // backward.
  bool defers_updates() const { return defers_updates_; }
  // Are the bucket's gradients gathered after its step was closed? The share 4 / 5 was measured
  // (bench/overlap.sh).
  bool gathers_in_forward(int bucket) const { return defers_updates_ && bucket < size() * 4 / 5; }
  // `update` queues the update of a bucket on the compute stream.
  void set_update(std::function<void(int bucket)> update) { update_ = std::move(update); }
  // Defers the bucket's update until its next use. Queues the gather of its gradients, unless the
  // backward did.
  void defer_update(int bucket);
  // Queues all deferred updates.
  void flush_updates();
  // Forgets them, because the step that has deferred them was never queued.
  void drop_updates() { is_deferred_.assign(is_deferred_.size(), 0); }

  // Completes own_grads() for readers. Collective.
  void complete_grads(int bucket);
  // Returns the whole bucket in fp32, from the part `own` of each shard (own_params(),
  // own_grads(), or a tensor of the optimizer). Waits for the device. Collective.
  std::vector<float> read_whole(int bucket, const optim::FlatFloats& own);

 private:
  // Returns the bytes of all shards; this rank holds `own`.
  std::vector<std::byte> read_whole(spec::ParamView, const device::Tensor& own,
                                    int64_t whole_bytes);
  Bucket& at(int bucket) { return buckets_[static_cast<size_t>(bucket)]; }
  spec::ParamView view(int bucket) const { return key(bucket).view; }
  // Returns the place of its gather buffer; -1: the rank holds the bucket's parameters whole.
  int gather_slot(int bucket) const { return buffers_.gather_slot[static_cast<size_t>(bucket)]; }
  size_t work_slot(int bucket) const;
  // Are its gradients summed in another type than they have?
  bool is_rounded(int bucket) const { return is_rounded_[static_cast<size_t>(view(bucket))]; }
  void sum_along_tp(int bucket);
  void run_update(int bucket);  // if it was deferred
  void finish_round(int bucket, int round, std::span<const device::ConstTensor> nodes,
                    device::Tensor part);

  DataGroups& groups_;
  TensorGroup& tensor_;
  const UpdateGate& gate_;
  const spec::Residency residency_;
  const int hosted_, rounds_;
  const bool defers_updates_;
  std::function<void(int bucket)> update_;
  // By view, then by hosted worker.
  std::array<std::vector<spec::Fold>, static_cast<size_t>(spec::ParamView::count)> folds_;
  spec::DataBuffers buffers_;
  device::Tensor rounded_;
  std::array<bool, static_cast<size_t>(spec::ParamView::count)> is_rounded_{};
  std::vector<device::Tensor> work_, gathered_;
  std::vector<spec::BucketKey> keys_;  // by bucket
  std::vector<std::string> names_;     // by bucket: of its layer
  std::vector<Bucket> buckets_;
  // By layer of the model.
  std::map<int, std::vector<device::Tensor>> params_, grads_;
  std::optional<SharedTable> table_;

  // ---- order between the streams
  std::vector<device::Event> written_;        // by bucket: own_params(), on compute
  std::vector<device::Event> arrived_;        // by bucket: whole_params(), on the data stream
  std::vector<device::Event> released_;       // by gather slot: on compute
  std::vector<device::Event> grads_arrived_;  // by bucket: of a deferred update, on the data stream
  std::vector<uint8_t> is_deferred_;          // by bucket: its update
  std::vector<device::Event> reduced_;        // by work slot: the leaf was read, on the data stream
  std::vector<int> holds_;                    // by gather slot: its bucket, or -1
};

}  // namespace trireme::engine
