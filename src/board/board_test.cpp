// SPDX-License-Identifier: Apache-2.0
#include "board/board.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <thread>

#include "base/error.h"
#include "base/text/json.h"
#include "board/api/handlers.h"
#include "board/gzip_body.h"
#include "board/run_folder_test.h"
#include "obs/run_owner.h"
#include "obs/scratch_folder_test.h"

namespace trireme::board {
namespace {

namespace fs = std::filesystem;

constexpr const char* loss = "loss_metrics%2Fglobal_avg_loss";

std::unique_ptr<Board> board_of(const std::vector<fs::path>& runs) {
  auto board = std::make_unique<Board>(BoardOptions{.runs = runs, .clock = [] { return 5000.0; }});
  board->poll();
  return board;
}

Response get(const Board& board, const std::string& url) { return board.handle(request_of(url)); }
base::Json json(const Board& board, const std::string& url) {
  const Response response = get(board, url);
  EXPECT_EQ(response.status, 200) << url << ": " << response.body;
  return base::Json::parse(response.body);
}
std::string body(const Response& response) {
  if (!response.stream) return response.body;
  std::string text;
  response.stream([&](std::string_view part) {
    text += part;
    return true;
  });
  return text;
}

std::vector<std::string> all_urls() {
  std::vector<std::string> urls = {"/api/runs", "/api/run/0"};
  for (const char* what : {"events?since=0", "diagnosis", "ledger", "checkpoints", "memory",
                           "pipeline", "collectives", "heat?table=ranks&column=compute_seconds",
                           "series?tag=grad_norm&px=50&x=time", "raw?tag=grad_norm"}) {
    urls.push_back(std::string("/api/run/0/") + what);
  }
  for (const char* rest : {"series?tag=", "raw?format=json&tag="}) {
    urls.push_back(std::string("/api/run/0/") + rest + loss);
  }
  return urls;
}

class BoardTest : public testing::Test {
 protected:
  obs::ScratchFolder folder;
  fs::path run = folder / "kjv";
};

TEST_F(BoardTest, every_answer_has_its_form) {
  write_run(run);
  const auto board = board_of({run});
  const base::Json runs = json(*board, "/api/runs");
  ASSERT_EQ(runs["runs"].size(), 1U);
  EXPECT_EQ(runs["plan"], false);
  EXPECT_EQ(runs["runs"][0]["name"], "kjv");
  EXPECT_EQ(runs["runs"][0]["step"], 200);
  EXPECT_EQ(runs["runs"][0]["age_seconds"], 3800);
  EXPECT_EQ(runs["runs"][0]["loss"], 6.0);
  const base::Json one = json(*board, "/api/run/0");
  for (const char* key :
       {"id",         "name",        "group",   "folder",     "state",   "lamp",
        "sentence",   "step",        "steps",   "tokens",     "attempt", "begin_time",
        "last_time",  "eta_seconds", "dollars", "restorable", "config",  "plan",
        "prediction", "program",     "tags",    "layers",     "ranks",   "rank_columns",
        "attempts",   "problems",    "revision"}) {
    EXPECT_TRUE(one.contains(key)) << key;
  }
  EXPECT_EQ(one["ranks"].size(), 4U);
  EXPECT_EQ(one["ranks"][2]["node"], "n1");
  EXPECT_EQ(one["rank_columns"].size(), obs::rank_columns);
  EXPECT_EQ(json(*board, "/api/run/0/events?since=0")["next"], 2);
  EXPECT_EQ(json(*board, "/api/run/0/events?since=1")["events"][0]["index"], 1);
  EXPECT_TRUE(json(*board, "/api/run/0/diagnosis").contains("waterfall"));
  EXPECT_TRUE(json(*board, "/api/run/0/ledger").contains("seconds"));
  EXPECT_EQ(json(*board, "/api/run/0/memory")["predicted"]["params"], 60);
  EXPECT_EQ(json(*board, "/api/run/0/memory")["measured_bytes_by_rank"].size(), 4U);
  EXPECT_TRUE(json(*board, "/api/run/0/pipeline").contains("missing"));
  EXPECT_TRUE(json(*board, "/api/run/0/checkpoints")["checkpoints"].empty());
}

TEST_F(BoardTest, series_raw_and_heat_agree_with_the_files) {
  write_run(run);
  const auto board = board_of({run});
  const base::Json series =
      json(*board, std::string("/api/run/0/series?px=4000&tag=grad_norm&tag=") + loss);
  EXPECT_EQ(series["first"], 1);
  EXPECT_EQ(series["last"], 200);
  const base::Json& drawn = series["series"]["grad_norm"];
  ASSERT_EQ(drawn["x"].size(), 200U);
  EXPECT_EQ(drawn["last"][199], 1 + 200 % 7);
  EXPECT_EQ(json(*board, "/api/run/0/series?tag=step&x=tokens&px=4000")["series"]["step"]["x"][1],
            2048);
  EXPECT_EQ(json(*board, "/api/run/0/series?tag=none")["series"]["none"]["x"].size(), 0U);

  const std::string csv = body(get(*board, "/api/run/0/raw?tag=grad_norm&from=2&to=3"));
  EXPECT_EQ(csv, "step,time,value\n2,1002,3\n3,1003,4\n");
  const std::string heat =
      get(*board, "/api/run/0/heat?table=ranks&column=compute_seconds&cols=3").body;
  uint32_t size = 0;
  std::memcpy(&size, heat.data(), sizeof(size));
  ASSERT_EQ(size % 4, 0U);
  const base::Json head = base::Json::parse(heat.substr(4, size));
  EXPECT_EQ(head["rows"].size(), 4U);
  EXPECT_EQ(head["steps"].dump(), "[[20,60],[80,120],[140,200]]");
  EXPECT_EQ(heat.size(), 4 + size + 4 * 3 * sizeof(float));

  Request again = request_of("/api/run/0/series?tag=grad_norm");
  again.headers["if-none-match"] = board->handle(again).headers[0].second;
  EXPECT_EQ(board->handle(again).status, 304);
}

TEST_F(BoardTest, bad_requests_are_refused_with_a_message) {
  write_run(run);
  const auto board = board_of({run});
  for (const char* url :
       {"/api/run/0/series", "/api/run/0/series?tag=a&px=0", "/api/run/0/series?tag=a&px=4001",
        "/api/run/0/series?tag=a&px=nan", "/api/run/0/series?tag=a&from=1e400",
        "/api/run/0/series?tag=a&x=loss", "/api/run/0/raw", "/api/run/0/raw?tag=lr&format=xml",
        "/api/run/0/heat?table=../run&column=a", "/api/run/0/heat?table=ranks",
        "/api/run/0/heat?table=ranks&column=a&cols=-1", "/api/run/0/events?since=x"}) {
    const Response response = get(*board, url);
    EXPECT_EQ(response.status, 400) << url;
    EXPECT_TRUE(base::Json::parse(response.body).contains("error")) << url;
  }
  for (const char* url :
       {"/api/run/1", "/api/run/-1", "/api/run/0x", "/api/run/", "/api/run/0/..", "/nothing",
        "/app/../run.json", "/app/.hidden", "/app/none.js", "/api/run/0/raw?tag=none",
        "/api/run/0/heat?table=ranks&column=none", "/api/run/99999999999999999999", "/api/plan"}) {
    EXPECT_EQ(get(*board, url).status, 404) << url;
  }
  std::string many = "/api/run/0/series?tag=a";
  for (int i = 0; i < 40; ++i) many += "&tag=b";
  EXPECT_EQ(get(*board, many).status, 400);
}

TEST_F(BoardTest, a_copied_folder_of_a_dead_run_gives_the_same_bytes) {
  write_run(run);
  const fs::path copy = folder / "other";
  fs::create_directories(copy);
  fs::copy(run, copy / "kjv", fs::copy_options::recursive);
  const auto first = board_of({run});
  const auto second = board_of({copy / "kjv"});
  for (const std::string& url : all_urls()) {
    std::string a = body(get(*first, url)), b = body(get(*second, url));
    // The folder is part of two answers.
    for (auto [text, path] : {std::pair{&a, run}, std::pair{&b, copy / "kjv"}}) {
      for (size_t at = 0; (at = text->find(path.string(), at)) != std::string::npos;) {
        text->replace(at, path.string().size(), "FOLDER");
      }
    }
    EXPECT_EQ(a, b) << url;
  }
}

TEST_F(BoardTest, secrets_are_masked) {
  write_run(run);
  const auto board = board_of({run});
  const std::string text = get(*board, "/api/run/0").body;
  EXPECT_EQ(text.find("hunter2"), std::string::npos);
  EXPECT_EQ(text.find("https://x/secret"), std::string::npos);
  EXPECT_NE(text.find("bridge --api-key (masked) --port 1"), std::string::npos);
}

TEST_F(BoardTest, appended_lines_are_seen_by_the_next_poll) {
  write_run(run, {.steps = 10});
  const auto board = board_of({run});
  const int64_t before = json(*board, "/api/run/0")["revision"];
  write_text(run / "metrics.jsonl", train_line(11, 1011, "\"grad_norm\":99"), true);
  board->poll();
  EXPECT_EQ(json(*board, "/api/run/0")["step"], 11);
  EXPECT_GT(json(*board, "/api/run/0")["revision"], before);
  EXPECT_EQ(json(*board, "/api/run/0/series?tag=grad_norm")["series"]["grad_norm"]["last"][10], 99);
}

TEST_F(BoardTest, updates_are_streamed_and_end_with_the_board) {
  write_run(run, {.steps = 10});
  const auto board = board_of({run});
  const Response response = get(*board, "/api/stream");
  ASSERT_TRUE(response.stream);
  EXPECT_EQ(response.type, "text/event-stream");
  std::string text;
  response.stream([&](std::string_view part) {
    text += part;
    board->stop();
    return true;
  });
  EXPECT_TRUE(text.starts_with("id: ")) << text;
  EXPECT_NE(text.find("event: update\ndata: {\"runs\":[{\"id\":0,"), std::string::npos) << text;
  EXPECT_TRUE(text.ends_with("\n\n"));
}

TEST_F(BoardTest, an_update_has_the_runs_that_have_changed) {
  for (const char* name : {"a", "b"}) write_run(folder / "runs" / name, {.steps = 10});
  Board board({.runs = runs_of({folder / "runs"})});
  board.poll();
  std::vector<std::string> sent;
  const std::string all = update_event(board, sent);
  EXPECT_NE(all.find("{\"id\":0,"), std::string::npos) << all;
  EXPECT_NE(all.find("{\"id\":1,"), std::string::npos) << all;
  EXPECT_NE(update_event(board, sent).find("{\"runs\":[]}"), std::string::npos);
  write_text(folder / "runs/b/metrics.jsonl", train_line(11, 1011, "\"grad_norm\":99"), true);
  board.poll();
  const std::string one = update_event(board, sent);
  EXPECT_EQ(one.find("{\"id\":0,"), std::string::npos) << one;
  EXPECT_NE(one.find("{\"id\":1,"), std::string::npos) << one;
}

TEST_F(BoardTest, runs_that_begin_later_are_found) {
  write_run(folder / "runs/b", {.name = "b"});
  Board board({.runs = runs_of({folder / "runs"}), .folders = {folder / "runs"}});
  board.poll();
  board.find_runs();
  EXPECT_EQ(json(board, "/api/runs")["runs"].size(), 1U);
  write_run(folder / "runs/a", {.name = "a"});
  fs::create_directories(folder / "runs/no_run");
  board.find_runs();
  // Known before its files are read, and after the runs that have a number already.
  EXPECT_EQ(json(board, "/api/runs")["runs"][1]["name"], "a");
  board.poll();
  const base::Json runs = json(board, "/api/runs")["runs"];
  ASSERT_EQ(runs.size(), 2U);
  EXPECT_EQ(runs[0]["name"], "b");
  EXPECT_EQ(runs[1]["name"], "a");
  EXPECT_EQ(runs[1]["step"], 200);
  EXPECT_NE(get(board, "/metrics").body.find("trireme_step{run=\"a\"} 200"), std::string::npos);
  fs::remove_all(folder / "runs");
  board.find_runs();
  board.poll();
  EXPECT_EQ(json(board, "/api/runs")["runs"].size(), 2U);
}

TEST_F(BoardTest, lists_do_not_read_the_points_of_runs) {
  for (const char* name : {"a", "b", "c"}) write_run(folder / "runs" / name, {.name = name});
  Board board({.runs = runs_of({folder / "runs"}), .max_loaded_bytes = 1});
  board.poll();
  const auto loaded = [&] {
    return std::ranges::count_if(board.runs(), [](RunView* one) { return one->is_loaded(); });
  };
  const base::Json runs = json(board, "/api/runs")["runs"];
  EXPECT_EQ(runs[1]["loss"], 6.0);
  EXPECT_EQ(runs[1]["tokens"], 200 * 1024);
  EXPECT_EQ(runs[1]["curve"][0].back(), 200);
  EXPECT_EQ(runs[1]["curve"][1].back(), 6.0);
  EXPECT_TRUE(runs[1]["is_analysed"]);
  get(board, "/metrics");
  get(board, "/api/configs");
  EXPECT_EQ(loaded(), 0);
  EXPECT_EQ(json(board, "/api/run/1/series?tag=grad_norm")["series"]["grad_norm"]["x"].size(),
            200U);
  EXPECT_EQ(loaded(), 1);
  board.poll();
  EXPECT_EQ(loaded(), 1) << "the runs that were asked for last are kept";
}

TEST_F(BoardTest, points_of_runs_that_are_not_looked_at_are_forgotten) {
  for (int i = 0; i < 10; ++i) write_run(folder.path() / fmt::format("runs/{}", i), {.steps = 10});
  Board board({.runs = runs_of({folder / "runs"}), .max_loaded_bytes = 1});
  board.poll();
  for (int i = 9; i >= 0; --i) get(board, fmt::format("/api/run/{}", i));
  board.poll();
  for (size_t i = 0; i < 10; ++i) EXPECT_EQ(board.runs()[i]->is_loaded(), i < 8) << i;
  EXPECT_EQ(json(board, "/api/run/9")["step"], 10);
}

TEST_F(BoardTest, polling_and_analysing_do_not_wait_for_each_other_without_end) {
  for (int i = 0; i < 4; ++i) write_run(folder.path() / fmt::format("runs/{}", i), {.steps = 3});
  Board board({.runs = runs_of({folder / "runs"})});
  board.poll();
  constexpr int rounds = 2000;
  std::atomic<int> polls = 0;
  std::thread poller([&] {
    for (int i = 0; i < rounds; ++i, ++polls) board.poll_files();
  });
  while (polls < rounds) board.analyse();  // locks in another order than poll_files() would hang
  poller.join();
  EXPECT_EQ(json(board, "/api/run/3")["step"], 3);
}

TEST_F(BoardTest, short_runs_are_analysed_before_long_ones) {
  write_run(folder / "runs/a", {.steps = 900});
  write_run(folder / "runs/b", {.steps = 9});
  Board board({.runs = runs_of({folder / "runs"})});
  board.poll_files();
  board.analyse(0);
  const base::Json runs = json(board, "/api/runs")["runs"];
  EXPECT_FALSE(runs[0]["is_analysed"]);
  EXPECT_TRUE(runs[1]["is_analysed"]);
}

TEST_F(BoardTest, keys_of_runs_do_not_depend_on_other_runs) {
  for (const char* name : {"x/a", "x/b", "y/b", "y/c"}) write_run(folder / name);
  const auto keys = [&](const std::vector<std::string>& folders) {
    Board board({.runs = runs_of(folders)});
    std::vector<std::string> found;
    for (const RunView* one : board.runs()) found.push_back(one->key());
    return found;
  };
  const std::string x = folder / "x", y = folder / "y";
  EXPECT_EQ(keys({x, y}), (std::vector<std::string>{"a", x + "/b", y + "/b", "c"}));
  EXPECT_EQ(keys({y, x}), (std::vector<std::string>{y + "/b", "c", "a", x + "/b"}));
  Board board({.runs = runs_of({x}), .folders = {x, y}});
  board.find_runs();
  ASSERT_EQ(board.runs().size(), 4U);
  EXPECT_EQ(board.runs()[2]->key(), y + "/b");
}

TEST_F(BoardTest, some_runs_of_the_list_can_be_asked_for) {
  for (const char* name : {"a", "b", "c"}) write_run(folder / "runs" / name, {.name = name});
  Board board({.runs = runs_of({folder / "runs"})});
  board.poll();
  const base::Json some = json(board, "/api/runs?ids=2,0");
  ASSERT_EQ(some["runs"].size(), 2U);
  EXPECT_EQ(some["runs"][0]["name"], "c");
  EXPECT_EQ(some["runs"][1]["name"], "a");
  EXPECT_EQ(some["count"], 3);
  EXPECT_EQ(json(board, "/api/runs?ids=")["runs"].size(), 0U);
  for (const char* ids : {"3", "x", "0,,1", "-1", "0 1"}) {
    EXPECT_EQ(get(board, std::string("/api/runs?ids=") + percent_encoded(ids)).status, 400) << ids;
  }
  EXPECT_EQ(get(board, "/api/runs?ids=0,1,2,0").status, 400);
}

TEST_F(BoardTest, configurations_are_listed_by_the_keys_that_differ) {
  const auto write = [&](const char* name, const char* config) {
    write_run(folder / "runs" / name, {.steps = 3});
    write_text(folder / "runs" / name / "run.json", config);
  };
  write("a",
        R"({"optimizer":{"lr":0.001,"name":"AdamW"},"token":"abc","program":{"version":"1"}})");
  write("b", R"({"optimizer":{"lr":0.002,"name":"AdamW"},"moe":{"experts":8},"token":"abd"})");
  Board board({.runs = runs_of({folder / "runs"})});
  board.poll_files();
  EXPECT_EQ(json(board, "/api/configs")["keys"].dump(),
            R"({"moe.experts":[null,"8"],"optimizer.lr":["0.001","0.002"]})");
  EXPECT_EQ(json(board, "/api/configs")["same"].dump(),
            R"x({"optimizer.name":"AdamW","token":"(masked)"})x");
}

TEST_F(BoardTest, with_only_running_runs_others_are_not_added) {
  write_run(folder / "runs/ended", {.name = "ended"});
  write_run(folder / "runs/live", {.name = "live"});
  Board board({.folders = {folder / "runs"}, .only_running = true});
  board.find_runs();
  EXPECT_TRUE(board.runs().empty());
  const auto owner = obs::RunOwner::hold(folder / "runs/live", {});
  owner->begin("");
  board.find_runs();
  ASSERT_EQ(board.runs().size(), 1U);
  EXPECT_EQ(board.runs()[0]->folder().filename(), "live");
}

TEST_F(BoardTest, more_runs_than_a_board_shows_are_counted) {
  for (int i = 0; i < 5; ++i) {
    const fs::path one = folder.path() / fmt::format("runs/{}", i);
    fs::create_directories(one);
    write_text(one / "run.json", "{}");
  }
  EXPECT_THROW(Board({.runs = runs_of({folder / "runs"}), .max_runs = 3}), base::IoError);
  Board board({.folders = {folder / "runs"}, .max_runs = 3});
  board.find_runs();
  EXPECT_EQ(board.runs().size(), 3U);
  EXPECT_EQ(board.unshown_runs(), 2U);
  const std::string text = get(board, "/metrics").body;
  EXPECT_NE(text.find("trireme_runs 5"), std::string::npos);
  EXPECT_NE(text.find("trireme_runs_left_out 2"), std::string::npos);
}

TEST_F(BoardTest, answers_are_compressed_on_request) {
  if (!gzip_of("x")) GTEST_SKIP() << "this build has no zlib";
  write_run(run);
  const auto board = board_of({run});
  const auto has = [](const Response& response, const std::string& name, const std::string& value) {
    return std::count(response.headers.begin(), response.headers.end(), std::pair{name, value}) ==
           1;
  };
  for (const char* url : {"/metrics", "/api/run/0", "/api/run/0/ledger"}) {
    Request request = request_of(url);
    const Response plain = board->handle(request);
    for (const char* refusal : {"", "identity", "br, gzip;q=0", "gzip; q=0.0"}) {
      request.headers["accept-encoding"] = refusal;
      EXPECT_EQ(board->handle(request).body, plain.body) << url << refusal;
    }
    request.headers["accept-encoding"] = "br;q=1.0, gzip;q=0.8, *;q=0.1";
    const Response packed = board->handle(request);
    if (plain.body.size() < 1024) {
      EXPECT_EQ(packed.body, plain.body);
      continue;
    }
    EXPECT_LT(packed.body.size(), plain.body.size() / 2) << url;
    EXPECT_EQ(packed.body.substr(0, 2), "\x1f\x8b");
    EXPECT_TRUE(has(packed, "Content-Encoding", "gzip"));
    EXPECT_TRUE(has(packed, "Vary", "Accept-Encoding"));
    EXPECT_TRUE(has(plain, "Vary", "Accept-Encoding"));
    write_text(folder / "body.gz", packed.body);
    EXPECT_EQ(std::system(("gzip -t " + (folder / "body.gz").string()).c_str()), 0);
  }
}

TEST_F(BoardTest, sparse_files_of_40_gib_are_read_in_part) {
  write_run(run);
  for (const char* name : {"metrics.jsonl", "events.jsonl", "phases.jsonl", "ranks.bin", "run.json",
                           "owner.json", "prediction.json"}) {
    std::ofstream(run / name, std::ios::app).close();
    fs::resize_file(run / name, uintmax_t{40} << 30);
  }
  const auto board = board_of({run});
  const base::Json one = json(*board, "/api/run/0");
  EXPECT_EQ(one["step"], 200);
  const std::string problems = one["problems"].dump();
  for (const char* name : {"metrics.jsonl", "events.jsonl", "run.json", "owner.json"}) {
    EXPECT_NE(problems.find(name), std::string::npos) << problems;
  }
  EXPECT_FALSE(board->runs()[0]->poll());  // and not again with every look
}

TEST_F(BoardTest, hostile_folders_are_shown_or_refused_and_never_waited_for) {
  const std::string markup = "<img src=x onerror=alert(1)>\"'\u2028";
  write_run(run, {.name = markup, .event_text = markup + std::string(10'000, 'x')});
  EXPECT_EQ(json(*board_of({run}), "/api/runs")["runs"][0]["name"], markup);

  const fs::path pipes = folder / "pipes";
  fs::create_directories(pipes);
  for (const char* name :
       {"run.json", "plan.json", "prediction.json", "owner.json", "metrics.jsonl", "events.jsonl",
        "phases.jsonl", "ranks.bin", "layers.bin", "pipeline.json", "collectives.json"}) {
    ASSERT_EQ(::mkfifo((pipes / name).c_str(), 0600), 0);
  }
  const auto piped = board_of({pipes});
  for (const std::string& url : all_urls()) EXPECT_GT(get(*piped, url).status, 0) << url;

  const fs::path deep = folder / "deep";
  write_run(deep);
  const std::string nested = std::string(100'000, '[') + std::string(100'000, ']');
  for (const char* name : {"plan.json", "pipeline.json", "prediction.json"}) {
    write_text(deep / name, nested);
  }
  write_text(deep / "events.jsonl", "{\"kind\":\"alert\",\"time\":1,\"data\":{\"a\":" + nested +
                                        "}}\n" + std::string(70'000, 'x') + "\n\xff\n");
  const auto nested_board = board_of({deep});
  for (const std::string& url : all_urls()) get(*nested_board, url);
  EXPECT_FALSE(json(*nested_board, "/api/run/0")["problems"].empty());
}

TEST_F(BoardTest, random_damage_of_files_and_requests_does_no_harm) {
  write_run(run, {.steps = 40});
  std::mt19937_64 random(17);
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(run))
    files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  for (int round = 0; round < 60; ++round) {
    const fs::path& file = files[random() % files.size()];
    const std::string good = obs::content_of(file);
    std::string bad = good;
    for (size_t i = 0; i < 1 + random() % 20 && !bad.empty(); ++i) {
      bad[random() % bad.size()] = static_cast<char>(random());
    }
    if (round % 4 == 0) bad.resize(random() % (bad.size() + 1));
    write_text(file, bad);
    const auto board = board_of({run});
    for (const std::string& url : all_urls()) body(get(*board, url));
    // Requests with parts at random places.
    for (int i = 0; i < 40; ++i) {
      std::string url = all_urls()[random() % all_urls().size()];
      for (size_t k = 0; k < 1 + random() % 4; ++k) {
        constexpr const char* parts[] = {"%",    "%00",        "&",          "=",    "/",
                                         "..",   "px=",        "from=-9e15", "tag=", "cols=4000",
                                         "\xff", "since=1e15", "x=time",     "?"};
        url.insert(random() % (url.size() + 1), parts[random() % std::size(parts)]);
      }
      const Response response = get(*board, url);
      EXPECT_TRUE(response.status == 200 || response.status == 400 || response.status == 404);
    }
    write_text(file, good);
  }
}

TEST_F(BoardTest, folders_without_runs_are_refused) {
  EXPECT_THROW(runs_of({(folder / "none").string()}), base::IoError);
  EXPECT_THROW(runs_of({folder.path().string()}), base::IoError);
  write_run(folder / "b");
  write_run(folder / "a");
  const std::vector<fs::path> found = runs_of({folder.path().string()});
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].filename(), "a");
}

}  // namespace
}  // namespace trireme::board
