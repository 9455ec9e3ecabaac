// SPDX-License-Identifier: Apache-2.0
#include "train/checkpointing/peer/copy_transfer.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <random>
#include <thread>

#include "base/system/descriptor.h"
#include "comm/peer/peer_listener.h"
#include "train/checkpointing/peer/copy_sender.h"

namespace trireme::train {
namespace {

constexpr int sending_rank = 5, keeping_rank = 2;
const std::string sent_run = "run-1";

ckpt::CopyShape sent_shape() {
  return {
      .layout = ckpt::hash_of("layout"), .bytes = 3'000'000, .rank = sending_rank, .buffers = 2};
}

// A rank with copies, and one that keeps them.
class CopyTransfer : public testing::Test {
 protected:
  CopyTransfer() {
    store_.emplace(kept_.value());
    store_->reserve(std::array{sent_shape()});
    serve([this](comm::PeerConnection& connection) { serve_copies(connection, *store_); });
  }
  void serve(comm::PeerListener::Serve serve) {
    listener_.emplace("127.0.0.1", group_, std::move(serve));
  }
  // Seals a copy of random bytes.
  void seal(int buffer, int64_t step) {
    std::mt19937 random(static_cast<uint32_t>(step));
    for (std::byte& byte : memory_.begin(buffer)) byte = static_cast<std::byte>(random());
    ckpt::CopyLabel label{.epoch = 1, .step = step};
    std::ranges::copy(sent_run, label.run.begin());
    memory_.seal(buffer, label);
  }
  CopySender::Target target(int64_t epoch = 3) const {
    return {.address = listener_->address(),
            .group = {.secret = group_.secret, .epoch = epoch},
            .own = sending_rank,
            .keeper = keeping_rank};
  }
  // Sends a sealed copy, and returns what the sender reports afterwards.
  static CopySender::State send(CopySender& sender, int buffer, int64_t step, int64_t keep) {
    sender.expect(step, keep);
    EXPECT_EQ(sender.state().sending, step);
    sender.send(buffer);
    while (sender.state().sending != ckpt::CopySteps::empty) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return sender.state();
  }
  // Another epoch, in which copies are read.
  void begin_next_epoch() {
    listener_.reset();
    store_.emplace(kept_.value());
    serve([this](comm::PeerConnection& connection) { serve_copies(connection, *store_); });
  }
  std::string fetch_problem(const ckpt::CopyShape& shape, int64_t step) {
    try {
      const comm::PeerStop stop;
      comm::PeerConnection connection(listener_->address(), group_, sending_rank, stop);
      (void)fetch_copy(connection, shape, step);
    } catch (const comm::PeerLost& error) {
      return error.what();
    }
    return "";
  }
  static void flip(int descriptor, int64_t at) {
    char byte = 0;
    ASSERT_EQ(::pread(descriptor, &byte, 1, at), 1);
    byte = static_cast<char>(byte ^ 1);
    ASSERT_EQ(::pwrite(descriptor, &byte, 1, at), 1);
  }

  const base::Descriptor own_{::memfd_create("own", MFD_CLOEXEC)};
  const base::Descriptor kept_{::memfd_create("kept", MFD_CLOEXEC)};
  ckpt::CopyMemory memory_{own_.value(), sent_shape()};
  const comm::PeerGroup group_{.secret = "of this epoch", .epoch = 3};
  std::optional<KeptStore> store_;
  std::optional<comm::PeerListener> listener_;
};

using KeptSteps = ckpt::CopySteps::Steps;
constexpr int64_t no_step = ckpt::CopySteps::empty;

TEST_F(CopyTransfer, copies_are_kept_and_come_back) {
  store_->begin(sent_run, 0);
  {
    CopySender sender(target(), memory_);
    seal(0, 1);
    CopySender::State state = send(sender, 0, 1, no_step);
    EXPECT_EQ(state.problem, "");
    EXPECT_EQ(state.kept, (KeptSteps{1, no_step, no_step}));
    seal(1, 2);
    EXPECT_EQ(send(sender, 1, 2, 1).kept, (KeptSteps{2, 1, no_step}));
    store_->mark_held(1);
    seal(0, 3);
    state = send(sender, 0, 3, 2);
    EXPECT_EQ(state.kept, (KeptSteps{3, 2, no_step}));
    EXPECT_EQ(state.sent, 3);
    EXPECT_EQ(state.bytes, 3 * sent_shape().bytes);
  }
  store_->mark_held(2);
  begin_next_epoch();
  const std::vector<KeptStore::Kept> kept = store_->list();
  ASSERT_EQ(kept.size(), 2U);
  EXPECT_EQ(kept[0].shape, sent_shape());
  EXPECT_EQ(kept[0].copy.label.step, 3);
  EXPECT_FALSE(kept[0].copy.is_held);
  EXPECT_EQ(kept[1].copy.label.step, 2);
  EXPECT_TRUE(kept[1].copy.is_held);
  const comm::PeerStop stop;
  comm::PeerConnection connection(listener_->address(), group_, sending_rank, stop);
  const FetchedCopy fetched = fetch_copy(connection, sent_shape(), 3);
  EXPECT_TRUE(std::ranges::equal(fetched.content, memory_.content(0)));
  EXPECT_EQ(fetched.label.epoch, 1);
  EXPECT_TRUE(
      std::ranges::equal(fetch_copy(connection, sent_shape(), 2).content, memory_.content(1)));
}

TEST_F(CopyTransfer, a_copy_that_is_not_for_this_rank_is_refused) {
  seal(0, 1);
  CopySender early(target(), memory_);
  EXPECT_EQ(send(early, 0, 1, no_step).problem, "it has not begun its epoch");
  store_->begin("run-2", 0);
  EXPECT_EQ(send(early, 0, 1, no_step).problem, "it trains another run");
  store_->begin(sent_run, 0);
  CopySender of_old_epoch(target(2), memory_);
  EXPECT_NE(send(of_old_epoch, 0, 1, no_step).problem.find("another epoch"), std::string::npos);
  CopySender::Target other = target();
  other.own = sending_rank + 1;
  CopySender of_other_rank(other, memory_);
  EXPECT_EQ(send(of_other_rank, 0, 1, no_step).problem, "a rank stores its own copies only");
  ckpt::CopyShape shape = sent_shape();
  shape.layout = ckpt::hash_of("another");
  store_->reserve(std::array{shape});
  EXPECT_EQ(send(early, 0, 1, no_step).problem, "it has no memory for this copy");
  store_->reserve({});
  store_->settle();
  EXPECT_EQ(store_->reserved_bytes(), 0);
  EXPECT_EQ(send(early, 0, 1, no_step).problem, "it has no memory for this copy");
}

TEST_F(CopyTransfer, a_connection_that_breaks_in_the_middle_leaves_the_older_copy) {
  store_->begin(sent_run, 0);
  listener_.reset();
  int served = 0;
  serve([&](comm::PeerConnection& connection) {
    // The second copy is read in part only.
    if (++served == 2) {
      std::string refusal;
      std::array<std::byte, 100'000> part;
      ckpt::CopyLabel label{.epoch = 1, .step = 2};
      std::ranges::copy(sent_run, label.run.begin());
      const auto storing = store_->store(sent_shape(), label, 1, refusal);
      ASSERT_TRUE(storing) << refusal;
      connection.receive(part);
      std::ranges::copy(part, storing->content().begin());
      return;
    }
    serve_copies(connection, *store_);
  });
  seal(0, 1);
  {
    CopySender first(target(), memory_);
    EXPECT_EQ(send(first, 0, 1, no_step).problem, "");
  }
  CopySender sender(target(), memory_);
  seal(1, 2);
  {
    const comm::PeerStop stop;
    comm::PeerConnection connection(listener_->address(), group_, sending_rank, stop);
    connection.send(memory_.content(1).first(100'000));
    EXPECT_FALSE(connection.wait());
  }
  EXPECT_EQ(store_->steps_of(sending_rank), std::vector<int64_t>{1});
  EXPECT_EQ(send(sender, 1, 2, 1).kept, (KeptSteps{2, 1, no_step}));
}

TEST_F(CopyTransfer, a_rank_that_is_gone_is_reported_and_tried_again) {
  store_->begin(sent_run, 0);
  const CopySender::Target at = target();
  CopySender sender(at, memory_);
  seal(0, 1);
  EXPECT_EQ(send(sender, 0, 1, no_step).problem, "");
  listener_.reset();
  seal(1, 2);
  const CopySender::State failed = send(sender, 1, 2, 1);
  EXPECT_NE(failed.problem, "");
  EXPECT_EQ(failed.kept, (KeptSteps{1, no_step, no_step}));
  EXPECT_EQ(failed.failed, 1);
  seal(0, 3);
  EXPECT_NE(send(sender, 0, 3, 1).problem.find("cannot be reached"), std::string::npos);
}

TEST_F(CopyTransfer, bytes_that_change_on_their_way_are_refused) {
  store_->begin(sent_run, 0);
  CopySender sender(target(), memory_);
  seal(0, 1);
  EXPECT_EQ(send(sender, 0, 1, no_step).problem, "");
  seal(1, 2);
  flip(own_.value(), sent_shape().memory_bytes() - 500'000);  // after it was sealed
  const CopySender::State damaged = send(sender, 1, 2, 1);
  EXPECT_EQ(damaged.problem, "its bytes arrived with another hash");
  EXPECT_EQ(damaged.kept, (KeptSteps{1, no_step, no_step}));
  EXPECT_EQ(store_->steps_of(sending_rank), std::vector<int64_t>{1});
  // The next copy is sent again.
  seal(1, 3);
  EXPECT_EQ(send(sender, 1, 3, 1).kept, (KeptSteps{3, 1, no_step}));
}

TEST_F(CopyTransfer, a_kept_copy_that_is_damaged_is_not_used) {
  store_->begin(sent_run, 0);
  {
    CopySender sender(target(), memory_);
    seal(0, 1);
    EXPECT_EQ(send(sender, 0, 1, no_step).problem, "");
  }
  begin_next_epoch();
  flip(kept_.value(), 1'000'000);
  EXPECT_NE(fetch_problem(sent_shape(), 1).find("the copy is damaged"), std::string::npos);
  EXPECT_EQ(fetch_problem(sent_shape(), 2), "it has no copy of that step");
  flip(kept_.value(), 1'000'000);
  EXPECT_EQ(fetch_problem(sent_shape(), 1), "");
  store_->begin(sent_run, 1);  // no rank reads from then on
  EXPECT_EQ(fetch_problem(sent_shape(), 1), "it has no copy of that step");
}

TEST_F(CopyTransfer, what_an_epoch_has_left_stays_until_a_copy_arrives) {
  store_->begin(sent_run, 0);
  {
    CopySender sender(target(), memory_);
    seal(0, 1);
    EXPECT_EQ(send(sender, 0, 1, no_step).problem, "");
  }
  // The next epoch keeps copies of another rank, and ends early.
  ckpt::CopyShape other = sent_shape();
  other.rank = sending_rank + 1;
  other.bytes = 1'000'000;
  begin_next_epoch();
  store_->reserve(std::array{other});
  store_->begin(sent_run, 1);
  EXPECT_EQ(store_->steps_of(sending_rank), std::vector<int64_t>{1});
  begin_next_epoch();
  EXPECT_EQ(fetch_problem(sent_shape(), 1), "");
  store_->reserve(std::array{other});
  store_->begin(sent_run, 1);
  // This one does not.
  const base::Descriptor descriptor(::memfd_create("other", MFD_CLOEXEC));
  ckpt::CopyMemory memory(descriptor.value(), other);
  std::ranges::fill(memory.begin(0), std::byte{1});
  ckpt::CopyLabel label{.epoch = 1, .step = 2};
  std::ranges::copy(sent_run, label.run.begin());
  memory.seal(0, label);
  CopySender::Target of_other = target();
  of_other.own = other.rank;
  CopySender sender(of_other, memory);
  EXPECT_EQ(send(sender, 0, 2, no_step).problem, "");
  EXPECT_TRUE(store_->steps_of(sending_rank).empty());
  EXPECT_EQ(store_->steps_of(other.rank), std::vector<int64_t>{2});
  EXPECT_EQ(store_->reserved_bytes(), ckpt::KeptCopies::memory_bytes(std::array{other}));
}

TEST_F(CopyTransfer, copies_of_later_steps_and_other_runs_are_emptied) {
  store_->begin(sent_run, 0);
  CopySender sender(target(), memory_);
  seal(0, 4);
  EXPECT_EQ(send(sender, 0, 4, no_step).problem, "");
  seal(1, 6);
  EXPECT_EQ(send(sender, 1, 6, 4).problem, "");
  store_->begin(sent_run, 5);
  EXPECT_EQ(store_->steps_of(sending_rank), std::vector<int64_t>{4});
  store_->begin("run-2", 5);
  EXPECT_TRUE(store_->steps_of(sending_rank).empty());
}

}  // namespace
}  // namespace trireme::train
