// SPDX-License-Identifier: Apache-2.0
// StoreLog: what a StoreServer knows, in memory that outlives its process: another server that is
// given the same memory and the same listening sockets goes on where the first one ended, and its
// clients connect again. It survives the process, not the host.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/system/descriptor.h"
#include "comm/store/store_wire.h"

namespace trireme::comm {

// The state of a server: keys, values and names as they stand in its table.
struct StoreContent {
  std::map<std::string, std::string> values;
  std::set<std::string> members;  // have joined and not left
  int64_t epoch = -1;             // the highest that was entered; -1: none
  int64_t departures = 0;

  bool operator==(const StoreContent&) const = default;
};

// "epoch/3/" of "epoch/3/rank", "" of "rank": what a key or name is in the scope of.
std::string scope_of(const std::string& scoped_name);
std::string scoped_gone_key(const std::string& scoped_name);

class StoreLog {
 public:
  // A file in memory, for the constructor. Throws IoError.
  static base::Descriptor new_file();
  // Goes on with the content of `file`, of which an incomplete end is cut off. `replaced` is called
  // when another file takes its place, on the server's thread. Throws IoError.
  StoreLog(base::Descriptor file, std::function<void(int descriptor)> replaced);

  // What the log had when it was opened.
  const StoreContent& content() const { return content_; }
  int descriptor() const { return file_.back().value(); }

  // ---- changes, before the reply to the client who made them. Throw IoError.
  // Both at once: the second may be empty.
  void set(const std::pair<std::string, std::string>& one,
           const std::pair<std::string, std::string>& other = {});
  // The keys of epochs below `epoch` - 1 are removed.
  void enter(int64_t epoch);
  void join(const std::string& name);  // it has not gone, if it ever had
  void leave(const std::string& name);
  void depart(int64_t departures);

  // Whether most of the log is about values that have changed since.
  bool is_long(size_t live_bytes) const;
  void rewrite(const StoreContent& content);

 private:
  void append(const StoreMessage& change);

  std::vector<base::Descriptor> file_;  // one
  std::function<void(int)> replaced_;
  StoreContent content_;
  size_t bytes_ = 0;
};

}  // namespace trireme::comm
