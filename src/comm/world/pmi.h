// SPDX-License-Identifier: Apache-2.0
// Pmi: the client of PMI-1, the protocol of text lines over an inherited socket (PMI_FD) by which
// mpirun of MPICH and of Intel MPI lets its processes exchange keys and values before they can
// reach each other. https://wiki.mpich.org/mpich/index.php/PMI_v1_Wire_Protocol
//
// If a process ends after it has begun PMI and before it has finalized it, the launcher assumes a
// crash and kills the other processes: call finalize() as soon as the exchange is complete.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <string>

#include "base/system/descriptor.h"

namespace trireme::comm {

class Pmi {
 public:
  struct Options {
    double deadline_s = 120;                  // for all calls together, from the constructor on
    const std::atomic<bool>* stop = nullptr;  // true: waiting ends, with Stopped
  };
  // Begins the protocol on `descriptor`, which this object closes. Throws ConfigError if that is
  // not a socket. Every call throws IoError if the launcher closes the connection, does not reply
  // in time, or violates the protocol; Stopped when options.stop is set.
  Pmi(int descriptor, const Options& options);

  // Keys and values are printable text without blanks and '='. A value is visible to others after
  // the next barrier().
  void put(const std::string& key, const std::string& value);
  // Returns when all processes of the job have entered it.
  void barrier();
  std::string get(const std::string& key);
  // Ends the protocol: the process may end in any way afterwards. No other call may follow.
  void finalize();

 private:
  using Message = std::map<std::string, std::string>;
  // Sends "cmd=..." and returns the reply, which must be the command `answer`.
  Message ask(const std::string& line, const std::string& answer);
  void send(std::string line);
  std::string receive_line();
  void wait_for(short events);
  [[noreturn]] void fail(const std::string& what) const;

  const base::Descriptor socket_;
  const Options options_;
  const std::chrono::steady_clock::time_point end_;
  std::string received_;
  std::string name_;  // of the job's key-value space
  size_t max_key_ = 64, max_value_ = 1024;
};

}  // namespace trireme::comm
