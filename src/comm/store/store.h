// SPDX-License-Identifier: Apache-2.0
// Store: a small key-value table that all ranks of a run share, through which processes find each
// other: addresses at the start, the verdict of a failure later. It is served by a server
// (store_server.h, reached by store_tcp.h) or kept in a shared folder (store_folder.h). Who lives
// stands in membership.h.
//
// Several threads may use a handle, one call at a time. A waiting call blocks the others, so a
// thread that waits should use a separate handle (another()). Calls throw CommAborted if the store
// does not reply.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace trireme::comm {

class Store {
 public:
  Store() = default;
  virtual ~Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  virtual void set(const std::string& key, const std::string& value) = 0;
  // Sets the value unless the key exists. Returns the value that the key has then.
  virtual std::string set_once(const std::string& key, const std::string& value) = 0;
  // Adds to a counter that starts at 0 and returns the sum.
  virtual int64_t add(const std::string& key, int64_t delta) = 0;
  // Returns the current values; none for keys that do not exist.
  std::vector<std::optional<std::string>> read(std::span<const std::string> keys);
  // Waits until all keys exist; returns false if the deadline passes first.
  [[nodiscard]] virtual bool wait(std::span<const std::string> keys, double deadline_s) = 0;

  // Returns a second handle on the same table.
  virtual std::unique_ptr<Store> another() const = 0;
  // "host:port" or the path of the folder.
  virtual std::string address() const = 0;
  // Returns this host's address as the store sees it; "127.0.0.1" if they share a host or a folder.
  virtual std::string local_address() const { return "127.0.0.1"; }

  // From now on this handle, and those that another() makes of it, belong to an epoch of the run:
  // its keys and names are apart from those of other epochs. The first handle that enters an epoch
  // ends all lower ones: a call of a handle of a lower epoch is refused with Fenced, and so is
  // entering one. A handle that has entered none sees the keys of the run, those of epochs as
  // epoch_key(), and is never refused. A server keeps the keys of the newest two epochs; a
  // folder keeps all, and compares epochs before each call, not together with it.
  virtual void enter(int64_t epoch) = 0;
  static std::string epoch_key(int64_t epoch, const std::string& key);

  // One key. get() waits and throws CommAborted when the deadline passes.
  std::string get(const std::string& key, double deadline_s);
  std::optional<std::string> try_get(const std::string& key);

 protected:
  friend class StoreMembership;

  struct Aged {
    std::string text;
    double age_s = 0;  // since it was last set, by the store's clock
  };
  virtual std::vector<std::optional<Aged>> read_aged(std::span<const std::string> keys) = 0;
  // Registers this handle as `name`: if the process ends without leave(), the store itself sets
  // gone_key(name) and any_gone_key (store_wire.h). A folder supports neither.
  virtual void join(const std::string& /*name*/) {}
  virtual void leave() {}
};

// Returns the error of a handle of epoch `own` when epoch `newest` has begun.
base::Fenced fenced_by(int64_t newest, int64_t own);

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
  double deadline_s = 30;       // to reach it
  bool retries = true;          // until the deadline; otherwise the first failure is final
  double reply_timeout_s = 30;  // for a reply that needs no waiting
  // So long the store may be away, because its server is started again (store_log.h): calls wait
  // for it, and are then repeated. At most 2 s once `is_leaving` is set: nothing depends on the
  // store any more.
  double outage_s = 0;
  const std::atomic<bool>* is_leaving = nullptr;
  // Identifies the job and the attempt. A store that was started with another token belongs to
  // another job or to an earlier attempt and is not joined. Folders do not compare it.
  std::string token;
  const std::atomic<bool>* stop = nullptr;          // when true, waiting ends with Stopped
  std::function<void(double waited_s)> on_waiting;  // called about every 10 s while it waits
};
// The store could not be reached, or has refused the token.
class StoreUnreachable : public base::CommAborted {
 public:
  StoreUnreachable(const std::string& message, std::string reason, bool is_refused)
      : base::CommAborted(message), reason_(std::move(reason)), is_refused_(is_refused) {}
  const std::string& reason() const { return reason_; }
  bool is_refused() const { return is_refused_; }  // a program replied at the address

 private:
  std::string reason_;
  bool is_refused_;
};

// Connects, retrying until the deadline; throws StoreUnreachable.
std::unique_ptr<Store> open_store(const StoreAddress& address, const StoreOptions& options);
std::unique_ptr<Store> open_store(const StoreAddress& address, double deadline_s);

}  // namespace trireme::comm
