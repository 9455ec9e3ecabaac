// SPDX-License-Identifier: Apache-2.0
// Store: where processes find each other. A small table of keys and values that all ranks of a run
// share: addresses at the start, heartbeats and the verdict of a failure later. Behind it stands a
// server (store_server.h, reached by store_tcp.h) or a shared folder (store_folder.h).
//
// A handle may be used by several threads, one call at a time: a waiting call keeps others out, so
// a thread that waits has a handle of its own (another()). A store that does not answer throws
// CommAborted.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace trireme::comm {

class Store {
 public:
  struct Value {
    std::string text;
    double age_s = 0;  // since it was last set, by the store's clock
  };

  Store() = default;
  virtual ~Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  virtual void set(const std::string& key, const std::string& value) = 0;
  // The first one wins: returns the value that stands.
  virtual std::string set_once(const std::string& key, const std::string& value) = 0;
  // Adds to a counter that starts at 0 and returns the sum.
  virtual int64_t add(const std::string& key, int64_t delta) = 0;
  // What is there now.
  virtual std::vector<std::optional<Value>> read(std::span<const std::string> keys) = 0;
  // Until all keys are there; false when the deadline passed before.
  [[nodiscard]] virtual bool wait(std::span<const std::string> keys, double deadline_s) = 0;

  // A second handle on the same table.
  virtual std::unique_ptr<Store> another() const = 0;
  // "host:port" or the path of the folder.
  virtual std::string address() const = 0;
  // This host's address as the store sees it; "127.0.0.1" if they share a host or a folder.
  virtual std::string local_address() const { return "127.0.0.1"; }

  // From here on this handle stands for `name`: if the process ends without leave(), the store sets
  // gone_key(name) and any_gone_key by itself. Throws CommAborted if another process that lives has
  // the name. A folder can do neither; there only heartbeats tell.
  virtual void join(const std::string& /*name*/) {}
  virtual void leave() {}
  static std::string gone_key(const std::string& name) { return "gone/" + name; }
  static constexpr const char* any_gone_key = "gone";

  // One key. get() waits and throws CommAborted when the deadline passes.
  std::string get(const std::string& key, double deadline_s);
  std::optional<std::string> try_get(const std::string& key);
};

// "host:port", "[::1]:port", "tcp://host:port"; or a folder: "/path", "./path", "file:///path".
// Throws ConfigError.
struct StoreAddress {
  bool is_folder = false;
  std::string host, folder;
  int port = 0;

  std::string text() const;
};
StoreAddress parse_store_address(const std::string& text);

struct StoreOptions {
  double deadline_s = 30;       // until it is reached
  double reply_timeout_s = 30;  // for an answer that needs no waiting
  // Names the job and the attempt. A store that was started with another one belongs to another
  // job, or to an attempt before: it is not joined. Folders do not compare it.
  std::string token;
  const std::atomic<bool>* stop = nullptr;          // true: reaching it ends, with Stopped
  std::function<void(double waited_s)> on_waiting;  // called about every 10 s while it waits
};
// Connects, trying again until the deadline; throws CommAborted.
std::unique_ptr<Store> open_store(const StoreAddress& address, const StoreOptions& options);
std::unique_ptr<Store> open_store(const StoreAddress& address, double deadline_s);

}  // namespace trireme::comm
