// SPDX-License-Identifier: Apache-2.0
// The client of PMI-1 against launchers that reply correctly, wrongly, late or not at all; and
// ranks that find their store through it.
#include "comm/world/pmi.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "base/error.h"
#include "comm/store/store_server.h"
#include "comm/world/process_world.h"
#include "comm/world/rendezvous.h"

namespace trireme::comm {
namespace {

// The launcher's end of one connection: replies to each line with `answer` until that returns
// nothing.
class FakeLauncher {
 public:
  using Answer = std::function<std::string(const std::string& line)>;
  explicit FakeLauncher(Answer answer) : answer_(std::move(answer)) {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
    client_ = ends[0];
    thread_ = std::thread([this, own = ends[1]] { serve(own); });
  }
  ~FakeLauncher() { thread_.join(); }
  FakeLauncher(const FakeLauncher&) = delete;
  FakeLauncher& operator=(const FakeLauncher&) = delete;

  int client() const { return client_; }  // the caller must close it

 private:
  void serve(int own) {
    const base::Descriptor socket(own);
    std::string in;
    std::array<char, 512> part;
    while (true) {
      const ssize_t count = ::recv(own, part.data(), part.size(), 0);
      if (count <= 0) return;
      in.append(part.data(), static_cast<size_t>(count));
      for (size_t end = in.find('\n'); end != std::string::npos; end = in.find('\n')) {
        const std::string out = answer_(in.substr(0, end));
        in.erase(0, end + 1);
        if (out.empty()) return;
        (void)::send(own, out.data(), out.size(), MSG_NOSIGNAL);
      }
    }
  }

  Answer answer_;
  int client_ = -1;
  std::thread thread_;
};

// The key-value space and the barrier of a job of `size` processes, as Hydra writes them.
class FakeJob {
 public:
  explicit FakeJob(int size) : size_(size) {}

  std::string answer(const std::string& line) {
    const auto field = [&](const std::string& name) {
      const size_t begin = line.find(" " + name + "=");
      if (begin == std::string::npos) return std::string();
      const size_t from = begin + name.size() + 2;
      return line.substr(from, line.find(' ', from) - from);
    };
    std::unique_lock lock(mutex_);
    if (line.starts_with("cmd=init ")) {
      return "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n";
    }
    if (line == "cmd=get_maxes") {
      return "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n";
    }
    if (line == "cmd=get_my_kvsname") return "cmd=my_kvsname kvsname=kvs_1_0\n";
    if (line.starts_with("cmd=put ")) {
      table_[field("key")] = field("value");
      return "cmd=put_result rc=0 msg=success\n";
    }
    if (line == "cmd=barrier_in") {
      const int round = entered_++ / size_;
      changed_.notify_all();
      changed_.wait(lock, [&] { return entered_ >= (round + 1) * size_; });
      return "cmd=barrier_out\n";
    }
    if (line.starts_with("cmd=get ")) {
      const auto found = table_.find(field("key"));
      if (found == table_.end()) {
        return "cmd=get_result rc=-1 msg=key_not_found value=unknown\n";
      }
      return "cmd=get_result rc=0 msg=success value=" + found->second + "\n";
    }
    if (line == "cmd=finalize") {
      ++finalized_;
      return "cmd=finalize_ack\n";
    }
    return "";
  }
  int finalized() {
    const std::scoped_lock lock(mutex_);
    return finalized_;
  }

 private:
  const int size_;
  std::mutex mutex_;  // guards all members below
  std::condition_variable changed_;
  std::map<std::string, std::string> table_;
  int entered_ = 0, finalized_ = 0;
};

// Returns the result of the first calls with a launcher that replies with `answer`.
std::string problem_of(const FakeLauncher::Answer& answer, const Pmi::Options& options = {}) {
  const FakeLauncher launcher(answer);
  try {
    Pmi pmi(launcher.client(), options);
    pmi.put("key", "value");
    return pmi.get("key");
  } catch (const base::IoError& error) {
    return error.what();
  } catch (const base::Stopped& error) {
    return error.what();
  }
}

TEST(Pmi, a_value_put_by_one_rank_is_read_by_the_others) {
  FakeJob job(2);
  const auto answer = [&](const std::string& line) { return job.answer(line); };
  const FakeLauncher zero(answer), one(answer);
  std::string got;
  std::thread other([&] {
    Pmi pmi(one.client(), {.deadline_s = 30});
    pmi.barrier();
    got = pmi.get("trireme-store");
    pmi.finalize();
  });
  Pmi pmi(zero.client(), {.deadline_s = 30});
  pmi.put("trireme-store", "abc/node1:77,[fe::1]:77");
  pmi.barrier();
  pmi.finalize();
  other.join();
  EXPECT_EQ(got, "abc/node1:77,[fe::1]:77");
  EXPECT_EQ(job.finalized(), 2);
}

TEST(Pmi, bad_replies_are_errors_with_the_text_found) {
  FakeJob job(1);
  const auto but = [&](const std::string& command, const std::string& answer) {
    return problem_of([&job, command, answer](const std::string& line) {
      return line.starts_with("cmd=" + command) ? answer : job.answer(line);
    });
  };
  EXPECT_EQ(but("nothing", ""), "value");
  const auto expect = [](const std::string& found, const std::string& part) {
    EXPECT_NE(found.find(part), std::string::npos) << found;
    EXPECT_NE(found.find("MASTER_ADDR"), std::string::npos) << found;
  };
  expect(but("init", ""), "it has closed the connection");
  expect(but("init", "HTTP/1.1 400 Bad Request\r\n"),
         "pmi_subversion=1': 'HTTP/1.1 400 Bad Request?'");
  expect(but("init", std::string("\0\xff\n", 3)),
         "pmi_subversion=1': '?"
         "?'");
  expect(but("init", "cmd=response_to_init rc=-1\n"), "failed: 'cmd=response_to_init rc=-1'");
  expect(but("get_my", "cmd=my_kvsname\n"), "did not name");
  expect(but("get_my", "\n"), "unexpected reply to 'cmd=get_my_kvsname': ''");
  expect(but("get_maxes", "cmd=maxes keylen_max=3 vallen_max=9\n"), "allows keys below 3");
  expect(but("get_maxes", std::string(200000, 'x')), "bytes without an end of line");
  expect(but("get k", "cmd=get_result rc=-1 msg=key_not_found\n"), "rc=-1");
  EXPECT_EQ(but("get_maxes", "cmd=maxes keylen_max=-3 vallen_max=zzz\n"), "value");
}

TEST(Pmi, without_a_reply_the_deadline_or_a_stop_ends_the_wait) {
  std::atomic<bool> has_ended = false;
  const auto silent = [&](const std::string&) {
    while (!has_ended) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return std::string();
  };
  const auto try_it = [&](const Pmi::Options& options) {
    has_ended = false;
    const FakeLauncher launcher(silent);
    std::string problem;
    try {
      const Pmi pmi(launcher.client(), options);
    } catch (const base::Error& error) {
      problem = error.what();
    }
    has_ended = true;
    return problem;
  };
  EXPECT_NE(try_it({.deadline_s = 0.05}).find("no reply within 0.05 s"), std::string::npos);
  const std::atomic<bool> stop = true;
  EXPECT_EQ(try_it({.deadline_s = 30, .stop = &stop}), "stopped while waiting for other ranks");
}

TEST(Pmi, a_descriptor_that_is_not_a_socket_is_refused) {
  for (const int descriptor : {-5, 4000}) {
    EXPECT_THROW(Pmi(descriptor, {}), base::ConfigError) << descriptor;
  }
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  const base::Descriptor in(pipe[0]), out(pipe[1]);
  EXPECT_THROW(Pmi(pipe[0], {}), base::ConfigError);
}

TEST(StoreEndpoints, round_trip_and_other_texts_are_refused) {
  const StoreEndpoints endpoints{.token = "12ab",
                                 .addresses = {"10.0.0.1:77", "[fe::1]:77", "node1:77"}};
  EXPECT_EQ(parse_store_endpoints(endpoints.text()).addresses, endpoints.addresses);
  EXPECT_EQ(parse_store_endpoints(endpoints.text()).token, endpoints.token);
  for (const char* wrong : {"", "/", "token", "token/", "/a:1", "t/a:1,", "t/a", "t/a:x"}) {
    EXPECT_THROW(parse_store_endpoints(wrong), base::IoError) << wrong;
  }
}

// Ranks as threads of this process; on "several hosts" the endpoints include all addresses of this
// host.
TEST(Rendezvous, ranks_find_one_store_through_the_launcher) {
  for (const int local_world : {3, 1}) {
    constexpr int ranks = 3;
    FakeJob job(ranks);
    std::vector<std::thread> threads;
    std::array<std::string, ranks> stores, tokens;
    std::atomic<int64_t> sum = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        const FakeLauncher launcher([&](const std::string& line) { return job.answer(line); });
        RankInfo info{.rank = rank, .world = ranks, .local_world = local_world};
        info.source = RankSource::pmi;
        info.pmi_descriptor = launcher.client();
        info.host_name = "no-such-name.invalid";
        ProcessWorld world(info, {.deadline_s = 30});
        const auto at = static_cast<size_t>(rank);
        stores[at] = world.info().store;
        tokens[at] = world.info().token;
        if (world.store().add("arrived", 1) == ranks) world.store().set("all", "1");
        const std::string all = "all";
        world.wait_for({&all, 1}, 30);
        sum += rank;
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(sum, 3);
    EXPECT_EQ(job.finalized(), ranks);
    EXPECT_EQ(stores[0], stores[1]);
    EXPECT_EQ(stores[0], stores[2]);
    EXPECT_EQ(tokens[0], tokens[2]);
    EXPECT_EQ(tokens[0].size(), 32U);
    EXPECT_TRUE(stores[0].starts_with("127.0.0.1:") || local_world < ranks) << stores[0];
  }
}

TEST(Rendezvous, a_port_used_by_another_job_is_skipped) {
  const StoreServer other({.host = "127.0.0.1", .token = "other job"});
  RankInfo info{.rank = 0, .world = 2};
  info.store = fmt::format("127.0.0.1:{}", other.port());
  info.token = "job";
  info.hosts_store = true;
  info.more_ports = 8;
  const Rendezvous zero = rendezvous(info, 10);
  EXPECT_NE(zero.info.store, info.store);
  info.rank = 1;
  info.hosts_store = false;
  EXPECT_EQ(rendezvous(info, 10).info.store, zero.info.store);
  info.rank = 0;
  info.more_ports = 0;
  EXPECT_EQ(rendezvous(info, 10).server, nullptr);  // only the given port
}

TEST(Rendezvous, an_unknown_store_is_refused) {
  RankInfo info{.rank = 0, .world = 2};
  info.store_problem = "set MASTER_ADDR";
  EXPECT_THROW(rendezvous(info, 1), base::ConfigError);
  info.store_problem = "";
  info.store = "host:5";
  info.token = "given";
  info.has_secret_token = true;
  EXPECT_EQ(rendezvous(info, 1).info.store, "host:5");
}

}  // namespace
}  // namespace trireme::comm
