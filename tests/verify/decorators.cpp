// SPDX-License-Identifier: Apache-2.0
#include "tests/verify/decorators.h"

#include <algorithm>

#include "base/check.h"

namespace trireme::tests {
namespace {

using comm::ConstTensor;
using comm::Stream;
using comm::Tensor;
using engine::HostMicrobatch;
using engine::MicrobatchSource;
using Source = std::unique_ptr<MicrobatchSource>;

// Changes the color or the key of groups of one name; either function may be empty.
struct WrongSplit {
  std::string name;
  std::function<int(int rank)> color, key;
};

// Only makes subgroups, which is all that an engine does with the world.
class WrongAxisWorld final : public comm::Communicator {
 public:
  WrongAxisWorld(std::unique_ptr<Communicator> inner, WrongSplit wrong)
      : Communicator(inner->rank(), inner->world_ranks(), inner->options(), recorder_),
        recorder_(inner->rank()),
        inner_(std::move(inner)),
        wrong_(std::move(wrong)) {}

  void abort(const std::string& reason) noexcept override { inner_->abort(reason); }

 private:
  std::unique_ptr<Communicator> do_split(int color, int key, Options options) override {
    if (options.name == wrong_.name) {
      if (wrong_.color) color = wrong_.color(rank());
      if (wrong_.key) key = wrong_.key(rank());
    }
    return inner_->split(color, key, std::move(options));
  }
  // As the default, without the check that would end the program here.
  std::unique_ptr<Communicator> do_subgroup(std::span<const int> members,
                                            Options options) override {
    const auto place = std::ranges::find(members, rank()) - members.begin();
    return do_split(*std::ranges::min_element(members), static_cast<int>(place),
                    std::move(options));
  }
  void do_all_gather(Stream&, Tensor, ConstTensor) override { refuse(); }
  void do_exchange(Stream&, Tensor, const std::byte*, int64_t, int64_t,
                   std::span<const int>) override {
    refuse();
  }
  void do_shift(Stream&, Tensor, ConstTensor) override { refuse(); }
  void do_broadcast(Stream&, Tensor, int) override { refuse(); }
  void do_send(Stream&, ConstTensor, int) override { refuse(); }
  void do_recv(Stream&, Tensor, int) override { refuse(); }
  void do_barrier() override { refuse(); }
  std::vector<std::string> do_gather_texts(const std::string& text) override { return {text}; }
  static void refuse() { TRIREME_CHECK(false, "this world only splits"); }

  comm::FlightRecorder recorder_;
  std::unique_ptr<Communicator> inner_;
  const WrongSplit wrong_;
};

train::VerifyHooks with_split(const WrongSplit& wrong) {
  train::VerifyHooks hooks;
  hooks.communicator =
      [=](int, std::unique_ptr<comm::Communicator> inner) -> std::unique_ptr<comm::Communicator> {
    return std::make_unique<WrongAxisWorld>(std::move(inner), wrong);
  };
  return hooks;
}

class Changed final : public MicrobatchSource {
 public:
  Changed(Source inner, Change change) : inner_(std::move(inner)), change_(std::move(change)) {}
  void fill(int index, const HostMicrobatch& out) override {
    inner_->fill(index, out);
    change_(calls_++, out);
  }
  uint64_t sample_hash(int index) const override { return inner_->sample_hash(index); }

 private:
  Source inner_;
  Change change_;
  int calls_ = 0;
};

train::VerifyHooks with_source(int rank, std::function<Source(device::Device&, Source)> make) {
  train::VerifyHooks hooks;
  hooks.source = [=](int here, device::Device& device, Source inner) {
    return rank < 0 || rank == here ? make(device, std::move(inner)) : std::move(inner);
  };
  return hooks;
}

// Batches that one rank sends to another, by number of the call.
class Mailbox {
 public:
  void put(int call, std::vector<int32_t> tokens, std::vector<int32_t> labels) {
    const std::lock_guard lock(mutex_);
    batches_[call] = {std::move(tokens), std::move(labels)};
    changed_.notify_all();
  }
  std::pair<std::vector<int32_t>, std::vector<int32_t>> take(int call) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return batches_.contains(call); });
    return batches_[call];
  }

 private:
  std::mutex mutex_;  // guards batches_
  std::condition_variable changed_;
  std::map<int, std::pair<std::vector<int32_t>, std::vector<int32_t>>> batches_;
};

}  // namespace

train::VerifyHooks with_faults(std::vector<comm::Fault> faults) {
  train::VerifyHooks hooks;
  hooks.communicator =
      [faults = std::move(faults)](
          int, std::unique_ptr<comm::Communicator> inner) -> std::unique_ptr<comm::Communicator> {
    return std::make_unique<comm::FaultyCommunicator>(std::move(inner), faults);
  };
  return hooks;
}

train::VerifyHooks with_group(std::string name, std::function<int(int rank)> color) {
  return with_split({.name = std::move(name), .color = std::move(color), .key = {}});
}

train::VerifyHooks with_order(std::string name, std::function<int(int rank)> key) {
  return with_split({.name = std::move(name), .color = {}, .key = std::move(key)});
}

train::VerifyHooks with_kernels(int rank, const kernels::Kernels& table) {
  train::VerifyHooks hooks;
  hooks.kernels = [rank, &table](int here) -> const kernels::Kernels& {
    return rank < 0 || rank == here ? table : kernels::cpu_kernels();
  };
  return hooks;
}

train::VerifyHooks with_tile(int64_t tile, train::VerifyHooks hooks) {
  hooks.backend = [tile](spec::Backend& backend) { backend.expert_tile = tile; };
  return hooks;
}

train::VerifyHooks with_batches(int rank, Change change) {
  return with_source(rank, [change](device::Device&, Source inner) -> Source {
    return std::make_unique<Changed>(std::move(inner), change);
  });
}

train::VerifyHooks with_batches_of(int from, int to) {
  // Shared by the sources of two ranks, of which either may end first.
  auto mailbox = std::make_shared<Mailbox>();
  train::VerifyHooks hooks;
  hooks.source = [=](int here, device::Device&, Source inner) -> Source {
    if (here == from) {
      return std::make_unique<Changed>(std::move(inner), [mailbox](int call,
                                                                   const HostMicrobatch& b) {
        mailbox->put(call, {b.tokens.begin(), b.tokens.end()}, {b.labels.begin(), b.labels.end()});
      });
    }
    if (here != to) return inner;
    return std::make_unique<Changed>(std::move(inner),
                                     [mailbox](int call, const HostMicrobatch& b) {
                                       const auto [tokens, labels] = mailbox->take(call);
                                       std::copy(tokens.begin(), tokens.end(), b.tokens.begin());
                                       std::copy(labels.begin(), labels.end(), b.labels.begin());
                                     });
  };
  return hooks;
}

train::VerifyHooks with_skipped_batch(int rank) {
  class Skipping final : public MicrobatchSource {
   public:
    explicit Skipping(Source inner) : inner_(std::move(inner)) {}
    void fill(int index, const HostMicrobatch& out) override {
      inner_->fill(index == 0 ? 1 : index, out);
    }
    uint64_t sample_hash(int index) const override { return inner_->sample_hash(index); }

   private:
    Source inner_;
  };
  return with_source(rank, [](device::Device&, Source inner) -> Source {
    return std::make_unique<Skipping>(std::move(inner));
  });
}

train::VerifyHooks with_hash(int rank) {
  class OtherHash final : public MicrobatchSource {
   public:
    explicit OtherHash(Source inner) : inner_(std::move(inner)) {}
    void fill(int index, const HostMicrobatch& out) override { inner_->fill(index, out); }
    uint64_t sample_hash(int index) const override { return inner_->sample_hash(index) + 1; }

   private:
    Source inner_;
  };
  return with_source(rank, [](device::Device&, Source inner) -> Source {
    return std::make_unique<OtherHash>(std::move(inner));
  });
}

train::VerifyHooks with_allocation(int rank, int64_t bytes) {
  return with_source(rank, [bytes](device::Device& device, Source inner) -> Source {
    // Shared because a std::function must be copyable.
    auto extra = std::make_shared<std::unique_ptr<device::Buffer>>();
    return std::make_unique<Changed>(std::move(inner), [=, &device](int, const HostMicrobatch&) {
      if (*extra) return;
      *extra = std::make_unique<device::Buffer>(device, device::Mem::scratch, bytes, "extra");
    });
  });
}

}  // namespace trireme::tests
