// SPDX-License-Identifier: Apache-2.0
#include "board/board.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <exception>
#include <fstream>
#include <map>
#include <system_error>
#include <tuple>

#include "analysis/read/run_state.h"
#include "base/error.h"
#include "base/log.h"
#include "base/sha256.h"
#include "base/text/count_text.h"
#include "base/text/json.h"
#include "board/api/handlers.h"
#include "board/assets.h"
#include "board/gzip_body.h"
#include "board/metrics/exposition.h"
#include "obs/run_dir.h"

namespace trireme::board {
namespace {

namespace fs = std::filesystem;

// Smaller files are read faster than a cache is checked.
constexpr int64_t min_cached_bytes = 8 << 20;

std::string hash_of(std::string_view text) {
  base::Sha256 hash;
  hash.update(std::as_bytes(std::span(text)));
  return hash.hex();
}

// Returns the run in the folder, or those directly in it, but those that are known.
std::vector<fs::path> runs_in(const fs::path& folder, const std::set<fs::path>& known = {}) {
  if (known.contains(folder)) return {};
  if (obs::holds_run(folder)) return {folder};
  std::error_code failed;
  std::vector<fs::path> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, failed)) {
    if (known.contains(entry.path())) continue;
    if (entry.is_directory(failed) && obs::holds_run(entry.path())) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

int64_t metrics_bytes_of(const fs::path& run) {
  std::error_code failed;
  const uintmax_t bytes = fs::file_size(run / obs::RunDir::metrics_name, failed);
  return failed ? 0 : static_cast<int64_t>(bytes);
}

bool is_asset_name(std::string_view name) {
  return !name.empty() && name.front() != '.' && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
  });
}

}  // namespace

Board::Board(BoardOptions options) : options_(std::move(options)) {
  if (options_.runs.size() > options_.max_runs) {
    throw base::IoError(fmt::format("{} runs; a board shows {} at most: name fewer folders",
                                    options_.runs.size(), options_.max_runs));
  }
  std::map<std::string, int> names;
  for (const fs::path& run : options_.runs) ++names[name_of_folder(run)];
  for (const fs::path& run : options_.runs) add_run(run, names[name_of_folder(run)] == 1);
}

void Board::add_run(const fs::path& folder, bool is_name_unique) {
  known_.insert(folder);
  const std::string name = name_of_folder(folder);
  names_.insert(name);
  const std::string key = is_name_unique ? name : folder.lexically_normal().string();
  auto view = std::make_unique<RunView>(folder, folder.string(), key, cache_of(folder));
  const std::lock_guard lock(runs_mutex_);
  runs_.push_back(std::move(view));
}

std::vector<RunView*> Board::runs() const {
  const std::lock_guard lock(runs_mutex_);
  std::vector<RunView*> all;
  for (const std::unique_ptr<RunView>& run : runs_) all.push_back(run.get());
  return all;
}

size_t Board::unshown_runs() const {
  const std::lock_guard lock(runs_mutex_);
  return unshown_runs_;
}

void Board::find_runs() {
  size_t added = 0, unshown = 0;
  for (const fs::path& folder : runs_now(options_.folders, known_)) {
    if (known_.contains(folder)) continue;  // two folders of the command line have it
    if (options_.only_running && !analysis::is_running(folder, now())) continue;
    if (runs().size() >= options_.max_runs) {
      ++unshown;
      continue;
    }
    add_run(folder, !names_.contains(name_of_folder(folder)));
    ++added;
  }
  {
    const std::lock_guard lock(runs_mutex_);
    if (unshown > unshown_runs_) {
      base::log_warning(
          "{} not shown: a board shows {} at most; name fewer folders",
          base::count_text(static_cast<int64_t>(unshown), "new run is", "new runs are"),
          options_.max_runs);
    }
    unshown_runs_ = unshown;
  }
  if (added > 0) announce();
}

fs::path Board::cache_of(const fs::path& folder) const {
  if (options_.cache_folder.empty()) return {};
  std::error_code failed;
  const fs::path whole = fs::weakly_canonical(fs::absolute(folder), failed);
  return options_.cache_folder / (hash_of(whole.string()).substr(0, 32) + ".board.cache");
}

void Board::poll_files() {
  bool has_changed = false;
  for (RunView* run : runs()) has_changed = run->poll() || has_changed;
  unload_unused();
  if (has_changed) announce();
}

void Board::unload_unused() {
  constexpr size_t min_kept = 8;  // as many as a page compares
  std::vector<std::pair<double, RunView*>> loaded;
  int64_t bytes = 0;
  for (RunView* run : runs()) {
    if (!run->is_loaded()) continue;
    loaded.emplace_back(run->last_use(), run);
    bytes += RunView::Glance(*run).head().bytes();
  }
  std::sort(loaded.begin(), loaded.end());
  for (size_t i = 0; i + min_kept < loaded.size() && bytes > options_.max_loaded_bytes; ++i) {
    bytes -= RunView::Glance(*loaded[i].second).head().bytes();
    loaded[i].second->unload();
  }
}

void Board::load_all(const Progress& progress) {
  for (RunView* run : runs()) {
    MetricStore::Progress step;
    if (progress) {
      step = [&](int64_t bytes, int64_t of) { progress(run->shown_folder(), bytes, of); };
    }
    run->load(step);
  }
}

void Board::analyse(double seconds) {
  const double begin = obs::steady_seconds();
  struct Place {
    int group = 0;
    int64_t bytes = 0;
    RunView* run = nullptr;
  };
  std::vector<Place> order;
  for (RunView* run : runs()) {
    // Not under the lock of a Glance, which is behind that of is_loaded() in the order of locks.
    const bool is_loaded = run->is_loaded();
    const RunView::Glance glance(*run);
    const bool is_running = glance.facts().state == analysis::RunState::running;
    const int group = is_loaded ? 0 : is_running ? 1 : 2;
    order.push_back({.group = group, .bytes = glance.head().bytes(), .run = run});
  }
  // A long run does not keep hundreds of short ones waiting.
  std::stable_sort(order.begin(), order.end(), [](const Place& a, const Place& b) {
    return std::tie(a.group, a.bytes) < std::tie(b.group, b.bytes);
  });
  bool has_changed = false;
  for (const Place& place : order) {
    has_changed = place.run->analyse(now()) || has_changed;
    if (obs::steady_seconds() - begin > seconds) break;
  }
  if (has_changed) announce();
}

void Board::analyse_first(int64_t bytes) {
  constexpr int64_t min_bytes_of_run = 1 << 20;  // a small run takes some time, too
  for (RunView* run : runs()) {
    const int64_t cost = std::max(min_bytes_of_run, metrics_bytes_of(run->folder()));
    if (cost > bytes) continue;
    bytes -= cost;
    run->analyse(now());
  }
}

void Board::save_caches(bool is_end) {
  if (options_.cache_folder.empty()) return;
  for (RunView* run : runs()) {
    if (!run->lacks_cache(is_end) || RunView::Glance(*run).head().bytes() < min_cached_bytes) {
      continue;
    }
    try {
      fs::create_directories(options_.cache_folder);
      run->save_cache();
    } catch (const std::exception& error) {
      base::log_warning("{}; the next start reads all metrics again", error.what());
    }
  }
}

void Board::announce() {
  {
    const std::lock_guard lock(mutex_);
    ++changes_;
  }
  changed_.notify_all();
}

void Board::stop() {
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
  }
  changed_.notify_all();
}

Response Board::handle(const Request& request) const {
  Response response = answer(request);
  compress_body(request, response);
  return response;
}

Response Board::answer(const Request& request) const {
  const std::string_view path = request.path;
  if (path == "/" || path.starts_with("/app/")) return asset(request);
  if (path == "/healthz") return {.type = "text/plain; charset=utf-8", .body = "ok\n"};
  if (path == "/metrics") return metrics_response(*this, request);
  if (path == "/api/runs") return runs_response(*this, options_.plan != nullptr, request);
  if (path == "/api/configs") return json_response(configs_json(*this));
  if (path == "/api/stream") return updates();
  if (path.starts_with("/api/plan") && options_.plan) {
    if (std::optional<Response> answer = options_.plan(request)) return std::move(*answer);
  }
  constexpr std::string_view run_prefix = "/api/run/";
  if (path.starts_with(run_prefix)) {
    const char* end = path.data() + path.size();
    const std::vector<RunView*> all = runs();
    size_t id = 0;
    const auto [at, error] = std::from_chars(path.data() + run_prefix.size(), end, id);
    if (error == std::errc() && id < all.size() && (at == end || *at == '/')) {
      const std::string_view what =
          at == end ? std::string_view() : path.substr(static_cast<size_t>(at - path.data()) + 1);
      return run_response(*all[id], id, what, request);
    }
    return error_response(404, fmt::format("there is no such run: the board shows runs 0 to {}",
                                           std::ssize(all) - 1));
  }
  return error_response(404, "there is no such page");
}

Response Board::run_response(const RunView& run, size_t id, std::string_view what,
                             const Request& request) const {
  if (what.empty()) return json_response(run_json(run, id, now()));
  if (what == "series") return series_response(run, request);
  if (what == "raw") return raw_response(run, request);
  if (what == "heat") return heat_response(run, request);
  if (what == "events") return events_response(run, request);
  if (what == "diagnosis") return json_response(diagnosis_json(run));
  if (what == "ledger") return json_response(ledger_json(run));
  if (what == "checkpoints") return json_response(checkpoints_json(run, now()));
  if (what == "memory") return json_response(memory_json(run));
  if (what == "pipeline" || what == "collectives") {
    return json_response(traced_json(run, std::string(what)));
  }
  return error_response(404, "there is no such page of a run");
}

Response Board::asset(const Request& request) const {
  const std::string name =
      request.path == "/" ? "index.html" : request.path.substr(std::string_view("/app/").size());
  if (!is_asset_name(name)) return error_response(404, "there is no such page");
  Response response{.type = std::string(media_type_of(name))};
  const bool is_developing = !options_.assets_folder.empty();
  if (is_developing && fs::is_regular_file(options_.assets_folder / name)) {
    std::ifstream in(options_.assets_folder / name, std::ios::binary);
    response.body.assign(std::istreambuf_iterator<char>(in), {});
    return response;
  }
  for (const Asset& one : embedded_assets()) {
    if (one.name != name) continue;
    const std::string tag = fmt::format("\"{}\"", one.hash.substr(0, 32));
    response.headers.emplace_back("ETag", tag);
    if (request.header("if-none-match") == tag) {
      response.status = 304;
      return response;
    }
    const bool is_packed = takes_gzip(request);
    if (is_packed) response.headers.emplace_back("Content-Encoding", "gzip");
    response.headers.emplace_back("Vary", "Accept-Encoding");
    response.body = is_packed ? one.gzip : one.plain;
    return response;
  }
  return error_response(404, "there is no such page");
}

// Server-sent events: the runs that have changed since the last update, at most two a second, and a
// comment when nothing has changed for 15 s, so that a client notices a lost connection.
Response Board::updates() const {
  return {.type = "text/event-stream", .stream = [this](const Sink& sink) {
            using std::chrono::milliseconds;
            int64_t seen = -1;
            int idle_seconds = 0;
            std::vector<std::string> sent;  // by run
            while (true) {
              bool is_new = false;
              {
                std::unique_lock lock(mutex_);
                is_new = changed_.wait_for(lock, milliseconds(1000),
                                           [&] { return is_stopped_ || changes_ != seen; });
                if (is_stopped_) return;
                seen = changes_;
              }
              idle_seconds = is_new ? 0 : idle_seconds + 1;
              // An empty part asks whether the page is still there.
              const std::string text = is_new                   ? update_event(*this, sent)
                                       : idle_seconds % 15 == 0 ? ": idle\n\n"
                                                                : "";
              if (!sink(text)) return;
              if (!is_new) continue;
              std::unique_lock lock(mutex_);
              if (changed_.wait_for(lock, milliseconds(500), [&] { return is_stopped_; })) return;
            }
          }};
}

std::vector<fs::path> runs_of(const std::vector<std::string>& folders) {
  std::vector<fs::path> runs;
  for (const std::string& name : folders) {
    const fs::path folder = name;
    std::error_code failed;
    if (!fs::is_directory(folder, failed)) {
      throw base::IoError(
          fmt::format("{}: there is no such folder; give the folder of a run", name));
    }
    const std::vector<fs::path> found = runs_in(folder);
    if (found.empty()) {
      throw base::IoError(fmt::format(
          "{}: neither this folder nor a folder in it has a run (run.json or metrics.jsonl); give "
          "the folder of a run, such as runs/kjv",
          name));
    }
    runs.insert(runs.end(), found.begin(), found.end());
  }
  return runs;
}

std::vector<fs::path> runs_now(const std::vector<std::string>& folders,
                               const std::set<fs::path>& known) {
  std::vector<fs::path> runs;
  for (const std::string& name : folders) {
    const std::vector<fs::path> found = runs_in(name, known);
    runs.insert(runs.end(), found.begin(), found.end());
  }
  return runs;
}

}  // namespace trireme::board
