// SPDX-License-Identifier: Apache-2.0
// Messages in flight: both ranks send first, several at once, on one stream and on side streams,
// for threads and for processes (here: threads of one process, each with its own ProcessWorld); and
// how they fail if the peer does not enter the call.
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "base/error.h"
#include "comm/failure/faulty.h"
#include "comm/gloo.h"
#include "comm/store/store_server.h"
#include "comm/world/rank_test.h"

namespace trireme::comm {
namespace {

using base::CommAborted;
using SentList = std::vector<std::unique_ptr<Sent>>;

struct Way {
  const char* name;
  StreamMode mode;  // of the device
  bool has_sides;   // messages are on side streams; otherwise on the rank's only stream
  bool is_gloo = false;
};

class MessagesTest : public testing::TestWithParam<Way> {
 protected:
  // A rank with its streams for sending and receiving.
  struct End {
    explicit End(std::unique_ptr<Communicator> group, const Way& way)
        : rank(std::move(group), way.mode),
          send_side(rank.device.make_side_stream("send")),
          receive_side(rank.device.make_side_stream("receive")),
          sends(way.has_sides ? *send_side : *rank.stream),
          receives(way.has_sides ? *receive_side : *rank.stream) {}

    int own() const { return rank.group->rank(); }
    int other() const { return 1 - rank.group->rank(); }
    std::unique_ptr<Sent> start_send(const Tensor& tensor) {
      return rank.group->start_send(sends, tensor, other());
    }
    void recv(const Tensor& tensor) { rank.group->recv(receives, tensor, other()); }
    void synchronize() {
      sends.synchronize();
      receives.synchronize();
      rank.stream->synchronize();
    }

    Rank rank;
    std::unique_ptr<device::Stream> send_side, receive_side;
    Stream& sends;
    Stream& receives;
  };

  void SetUp() override {
    if (GetParam().is_gloo && !gloo_status().empty()) GTEST_SKIP() << gloo_status();
  }

  // Runs two ranks; `wrap` may wrap their communicators.
  using Wrap = std::function<std::unique_ptr<Communicator>(std::unique_ptr<Communicator>)>;
  static void run(
      const std::function<void(End&)>& body, const Communicator::Options& options = {.name = "pp"},
      const Wrap& wrap = [](std::unique_ptr<Communicator> group) { return group; }) {
    const auto on_rank = [&](std::unique_ptr<Communicator> group) {
      End end(wrap(std::move(group)), GetParam());
      body(end);
      end.synchronize();
      end.rank.group->barrier();
    };
    if (!GetParam().is_gloo) {
      ThreadWorld world(2, 60);
      run_ranks(world, [&](int r) { on_rank(world.communicator(r, options)); });
      EXPECT_EQ(world.verdict(), "");
      return;
    }
    // A program that has run tests for seconds would be taken for one of an earlier attempt.
    const StoreServer server({.host = "127.0.0.1", .grace_s = 0});
    std::vector<std::thread> threads;
    for (int r = 0; r < 2; ++r) {
      threads.emplace_back([&, r] {
        ProcessWorld world({.rank = r,
                            .world = 2,
                            .local_rank = r,
                            .local_world = 2,
                            .store = "127.0.0.1:" + std::to_string(server.port())});
        on_rank(make_gloo(world, options));
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  static Values values(int rank, int round) {
    return random_values(5000, static_cast<uint64_t>(10 * rank + round));
  }
};

// With send() the ranks would wait for each other.
TEST_P(MessagesTest, both_ranks_send_three_before_either_receives) {
  run([](End& end) {
    Rank& rank = end.rank;
    std::vector<Tensor> out, in;
    SentList sent;
    for (int round = 0; round < 3; ++round) {
      out.push_back(rank.make(values(end.own(), round)));
      in.push_back(rank.make(Values(5000)));
      sent.push_back(end.start_send(out.back()));
    }
    for (const Tensor& tensor : in) end.recv(tensor);
    const Tensor nothing = rank.make(Values(5000));
    for (size_t round = 0; round < 3; ++round) {
      sent[round]->wait(*rank.stream);
      sent[round]->wait(*rank.stream);  // changes nothing
      rank.stream->copy_bytes(out[round], nothing);
    }
    rank.stream->wait(end.receives.record());
    for (int round = 0; round < 3; ++round) {
      EXPECT_EQ(rank.read(in[static_cast<size_t>(round)]), values(end.other(), round));
    }
    EXPECT_EQ(rank.group->traffic().bytes, 3 * out[0].bytes());
    EXPECT_EQ(rank.group->traffic().calls, 6);
  });
}

TEST_P(MessagesTest, one_buffer_is_sent_repeatedly) {
  run([](End& end) {
    Rank& rank = end.rank;
    const Tensor out = rank.make(Values(5000)), in = rank.make(Values(5000));
    for (int round = 0; round < 5; ++round) {
      const Tensor next = rank.make(values(end.own(), round));
      rank.stream->copy_bytes(out, next);
      end.sends.wait(rank.stream->record());
      const auto sent = end.start_send(out);
      end.recv(in);
      sent->wait(*rank.stream);
      rank.stream->wait(end.receives.record());
      EXPECT_EQ(rank.read(in), values(end.other(), round));
    }
  });
}

TEST_P(MessagesTest, order_is_that_of_the_calls_not_of_the_streams) {
  if (!GetParam().has_sides) GTEST_SKIP() << "one stream";
  run([](End& end) {
    Rank& rank = end.rank;
    const auto late = rank.device.make_side_stream("late");
    const Tensor first = rank.make(values(end.own(), 0)), second = rank.make(values(end.own(), 1));
    std::atomic<bool> is_open = false;
    dynamic_cast<device::CpuStream&>(*late).enqueue([&is_open] {
      while (!is_open) std::this_thread::yield();
    });
    const auto sent_first = rank.group->start_send(*late, first, end.other());
    const auto sent_second = end.start_send(second);
    const Tensor in_first = rank.make(Values(5000)), in_second = rank.make(Values(5000));
    end.recv(in_first);
    end.recv(in_second);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the second may overtake
    is_open = true;
    end.receives.synchronize();
    EXPECT_EQ(rank.read(in_first), values(end.other(), 0));
    EXPECT_EQ(rank.read(in_second), values(end.other(), 1));
    late->synchronize();
  });
}

TEST_P(MessagesTest, empty_messages_and_plain_calls_fit_in_between) {
  run([](End& end) {
    Rank& rank = end.rank;
    const Tensor x = rank.make({1, 2, 3}), y = rank.make({0, 0, 0});
    const auto nothing = end.start_send(x.slice_rows(0, 0));
    end.recv(y.slice_rows(0, 0));
    nothing->wait(*rank.stream);
    if (end.own() == 0) {
      rank.group->send(end.sends, x, 1);
    } else {
      end.recv(y);
      rank.stream->wait(end.receives.record());
      EXPECT_EQ(rank.read(y), (Values{1, 2, 3}));
    }
  });
}

TEST_P(MessagesTest, injected_faults_happen_at_the_receiver) {
  const auto wrap = [](std::unique_ptr<Communicator> group) -> std::unique_ptr<Communicator> {
    return std::make_unique<FaultyCommunicator>(
        std::move(group), std::vector<Fault>{{.what = Fault::What::doubled, .op = "recv"}});
  };
  run(
      [](End& end) {
        const Tensor x = end.rank.make({1, 2}), y = end.rank.make({0, 0});
        const auto sent = end.start_send(x);
        end.recv(y);
        sent->wait(*end.rank.stream);
        end.rank.stream->wait(end.receives.record());
        EXPECT_EQ(end.rank.read(y), (Values{2, 4}));
        EXPECT_EQ(end.rank.read(x), (Values{1, 2}));
      },
      {.name = "pp"}, wrap);
}

// A stream that waits for a message is not part of a cycle: the hosts enter the collective.
TEST_P(MessagesTest, debug_mode_lets_collectives_pass_messages_that_are_awaited) {
  if (!GetParam().has_sides) GTEST_SKIP() << "the host waits in recv";
  run(
      [](End& end) {
        const Tensor x = end.rank.make({1, 2}), y = end.rank.make({0, 0});
        end.recv(y);
        for (int round = 0; round < 20; ++round) end.rank.group->barrier();
        const auto sent = end.start_send(x);
        end.receives.synchronize();
        EXPECT_EQ(end.rank.read(y), (Values{1, 2}));
        sent->wait(*end.rank.stream);
      },
      {.name = "pp", .debug = true});
}

// ---- failures. Verdicts of processes are tested with process_world.

TEST_P(MessagesTest, abort_wakes_a_sender_that_waits_for_its_receiver) {
  if (GetParam().is_gloo) GTEST_SKIP() << "threads only";
  ThreadWorld world(2);
  const std::string found = failure_of(world, [&](int r) {
    End end(world.communicator(r, {.name = "pp"}), GetParam());
    if (r == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      end.rank.group->abort("no space left");
      return;
    }
    const Tensor x = end.rank.make({1, 2});
    const auto sent = end.start_send(x);
    const auto wait = [&] {
      sent->wait(*end.rank.stream);
      end.rank.stream->synchronize();
    };
    EXPECT_THROW(wait(), CommAborted);
    EXPECT_THROW(end.start_send(x), CommAborted);
    wait();
  });
  EXPECT_EQ(found, "rank 1 aborted group 'pp': no space left");
}

TEST_P(MessagesTest, a_deadline_names_the_rank_that_did_not_receive) {
  if (GetParam().is_gloo) GTEST_SKIP() << "threads only";
  ThreadWorld world(2, 0.2);
  const std::string found = failure_of(world, [&](int r) {
    End end(world.communicator(r, {.name = "pp"}), GetParam());
    const Tensor x = end.rank.make({1, 2}), y = end.rank.make({0, 0});
    if (r == 1) {
      end.recv(y);
      end.receives.synchronize();
      return;
    }
    const auto first = end.start_send(x), second = end.start_send(x);
    first->wait(*end.rank.stream);
    second->wait(*end.rank.stream);
    end.rank.stream->synchronize();
  });
  EXPECT_EQ(found,
            "rank 1 did not enter recv #1 from rank 0 of group 'pp' within 0.2 s; rank 0 is "
            "waiting; the last call that rank 1 finished was recv #0 of 'pp'");
}

TEST_P(MessagesTest, a_message_dropped_by_the_sender_is_not_read) {
  if (GetParam().has_sides || GetParam().mode != StreamMode::inline_calls) {
    GTEST_SKIP() << "the stream keeps the message";
  }
  ThreadWorld world(2);
  const std::string found = failure_of(world, [&](int r) {
    End end(world.communicator(r, {.name = "pp"}), GetParam());
    const Tensor x = end.rank.make({1, 2});
    if (r == 0) end.start_send(x).reset();
    end.rank.group->barrier();
    if (r == 1) end.recv(x);
  });
  EXPECT_EQ(found, "rank 0 dropped message #0 of group 'pp' before rank 1 received it");
}

INSTANTIATE_TEST_SUITE_P(
    ways, MessagesTest,
    testing::Values(Way{"inline", StreamMode::inline_calls, false},
                    Way{"inline_sides", StreamMode::inline_calls, true},
                    Way{"worker_sides", StreamMode::worker_threads, true},
                    Way{"gloo_inline_sides", StreamMode::inline_calls, true, true},
                    Way{"gloo_worker_sides", StreamMode::worker_threads, true, true}),
    [](const testing::TestParamInfo<Way>& way) { return std::string(way.param.name); });

}  // namespace
}  // namespace trireme::comm
