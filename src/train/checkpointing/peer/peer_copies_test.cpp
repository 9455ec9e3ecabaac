// SPDX-License-Identifier: Apache-2.0
// Ranks, as threads, keep the copies of each other over two epochs.
#include "train/checkpointing/peer/peer_copies.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/system/descriptor.h"
#include "comm/threads.h"
#include "device/cpu/cpu_device.h"
#include "kernels/table.h"

namespace trireme::train {
namespace {

constexpr int peer_ranks = 4;

ckpt::CopyShape shape_of_peer(int rank) {
  return {.layout = ckpt::hash_of("layout"), .bytes = 200'000, .rank = rank, .buffers = 2};
}

// What outlives the process of a rank.
struct PeerMemory {
  base::Descriptor own{::memfd_create("own", MFD_CLOEXEC)};
  base::Descriptor kept{::memfd_create("kept", MFD_CLOEXEC)};
};

// Runs an epoch on all ranks.
void run_epoch(std::vector<PeerMemory>& memory, int64_t epoch,
               const std::function<void(Rank&, PeerCopies&)>& body) {
  comm::ThreadWorld world(peer_ranks, 60);
  comm::run_ranks(world, [&](int number) {
    device::CpuDevice device(kernels::cpu_kernels(), {});
    spec::Sizes mesh;
    mesh[spec::Axis::dp] = peer_ranks;
    Rank rank(world.communicator(number, {.name = "world"}), mesh, device);
    {
      PeerCopies peers({.rank = rank,
                        .memory_fd = memory[static_cast<size_t>(number)].kept.value(),
                        .host_address = "127.0.0.1",
                        .epoch = epoch});
      body(rank, peers);
      rank.barrier();
    }
    rank.close(comm::End::finish);
  });
}

TEST(PeerCopiesTest, every_rank_finds_its_copy_on_another_node) {
  std::vector<PeerMemory> memory(peer_ranks);
  const Partners partners = partners_of(std::array{0, 0, 1, 1}, std::vector<std::string>{"a", "b"});
  run_epoch(memory, 1, [&](Rank& rank, PeerCopies& peers) {
    const int number = rank.number();
    EXPECT_TRUE(peers.kept().empty());
    std::vector<ckpt::CopyShape> shapes;
    for (const int of : partners.ranks_kept_by(number)) shapes.push_back(shape_of_peer(of));
    peers.reserve(shapes);
    EXPECT_EQ(peers.reserved_bytes(), ckpt::KeptCopies::memory_bytes(shapes));
    ckpt::CopyMemory own(memory[static_cast<size_t>(number)].own.value(), shape_of_peer(number));
    peers.send_to(partners, own);
    peers.begin("run", 0);
    rank.barrier();
    std::ranges::fill(own.begin(0), static_cast<std::byte>(10 + number));
    ckpt::CopyLabel label{.epoch = 1, .step = 4};
    label.run = {'r', 'u', 'n'};
    own.seal(0, label);
    peers.sender().expect(4, ckpt::CopySteps::empty);
    peers.sender().send(0);
    while (peers.sender().state().sending != ckpt::CopySteps::empty) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(peers.sender().state().problem, "");
    rank.barrier();  // all have arrived
    peers.mark_held(4);
    rank.barrier();  // no rank ends before
  });
  run_epoch(memory, 2, [&](Rank& rank, PeerCopies& peers) {
    const int number = rank.number();
    const std::vector<KeptStore::Kept> kept = peers.kept();
    ASSERT_EQ(kept.size(), 1U);
    EXPECT_EQ(kept[0].shape.rank, (number + 2) % peer_ranks);
    EXPECT_TRUE(kept[0].copy.is_held);
    rank.barrier();
    const int keeper = partners.keepers[static_cast<size_t>(number)];
    // The process that had the memory of the first epoch was lost with it.
    const base::Descriptor descriptor(::memfd_create("own", MFD_CLOEXEC));
    ckpt::CopyMemory own(descriptor.value(), shape_of_peer(number));
    const FetchedCopy fetched = peers.fetch(keeper, shape_of_peer(number), 4, &own);
    ASSERT_EQ(own.copies().size(), 1U);
    EXPECT_TRUE(own.copies()[0].is_held);
    EXPECT_EQ(own.copies()[0].label.step, 4);
    EXPECT_TRUE(own.verify(own.copies()[0].buffer));
    EXPECT_EQ(fetched.content.data(), own.content(own.copies()[0].buffer).data());
    EXPECT_NE(peers.fetch(keeper, shape_of_peer(number), 4, nullptr).memory, nullptr);
    EXPECT_EQ(fetched.label.step, 4);
    EXPECT_TRUE(std::ranges::all_of(fetched.content, [number](std::byte byte) {
      return byte == static_cast<std::byte>(10 + number);
    }));
  });
}

TEST(PeerCopiesTest, a_rank_whose_copies_do_not_arrive_is_reported_once) {
  std::vector<PeerMemory> memory(peer_ranks);
  const Partners partners = partners_of(std::array{0, 0, 1, 1}, std::vector<std::string>{"a", "b"});
  run_epoch(memory, 1, [&](Rank& rank, PeerCopies& peers) {
    const ckpt::CopyMemory own(memory[static_cast<size_t>(rank.number())].own.value(),
                               shape_of_peer(rank.number()));
    peers.send_to(partners, own);
    const std::vector<std::string> good(peer_ranks), bad = {"", "it is gone", "", ""};
    EXPECT_TRUE(peers.news(good).empty());
    const std::vector<PartnerNews> lost = peers.news(bad);
    ASSERT_EQ(lost.size(), 1U);
    EXPECT_TRUE(lost[0].is_lost);
    EXPECT_EQ(lost[0].rank, 1);
    EXPECT_TRUE(lost[0].text.starts_with("copies of rank 1 to rank 3 do not arrive: it is gone; "));
    EXPECT_TRUE(peers.news(bad).empty());
    const std::vector<PartnerNews> back = peers.news(good);
    ASSERT_EQ(back.size(), 1U);
    EXPECT_FALSE(back[0].is_lost);
    EXPECT_EQ(back[0].text, "copies of rank 1 to rank 3 arrive again");
  });
}

}  // namespace
}  // namespace trireme::train
