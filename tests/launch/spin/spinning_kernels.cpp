// SPDX-License-Identifier: Apache-2.0
// Linked with the program `trireme` into `spinning_trireme`: the device of one of its ranks spins
// for ever in the norm of a layer, once (ld --wrap replaces the tables of kernels).
//
//   TRIREME_SPIN=RANK@SECONDS:FILE   the rank that spins, so many seconds after its first norm;
//                                    unless FILE, which it writes, is there already
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include "base/error.h"
#include "kernels/table.h"
#include "tests/launch/spin/spin_gate.h"

namespace trireme::tests {
namespace {

using kernels::Kernels;

// Page-locked by lock_gate() if the device is a GPU.
alignas(4096) SpinGate planted_gate{};

// Makes the gate due after a time.
class GateClock {
 public:
  GateClock() {
    const char* given = std::getenv("TRIREME_SPIN");
    const char* rank = std::getenv("TRIREME_RANK");
    if (given == nullptr || rank == nullptr) return;
    const std::string text = given;
    const size_t at = text.find('@'), colon = text.find(':');
    if (at == std::string::npos || colon == std::string::npos || colon < at) {
      throw base::ConfigError("TRIREME_SPIN=" + text + ": expected RANK@SECONDS:FILE");
    }
    if (text.substr(0, at) != rank) return;
    const int file = ::open(text.substr(colon + 1).c_str(), O_CREAT | O_EXCL | O_WRONLY, 0600);
    if (file < 0) return;  // the process that this one replaces has spun
    ::close(file);
    is_on_ = true;
    const std::chrono::duration<double> span(std::stod(text.substr(at + 1, colon - at - 1)));
    thread_ = std::jthread([span](const std::stop_token& stop) {
      const auto end = std::chrono::steady_clock::now() + span;
      while (!stop.stop_requested() && std::chrono::steady_clock::now() < end) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
      set_gate_number(planted_gate.due, 1);
    });
  }
  bool is_on() const { return is_on_; }

 private:
  bool is_on_ = false;
  std::jthread thread_;
};

bool has_gate(const device::Stream& stream) {
  static const GateClock clock;
  static const bool is_locked = (lock_gate(stream, &planted_gate), true);
  return clock.is_on() && is_locked;
}

using Table = const Kernels& (*)();

// Returns the table with the gate in front of a norm.
template <Table real>
const Kernels& gated_table() {
  static const Kernels table = [] {
    Kernels gated = real();
    gated.norm_forward = [](device::Stream& stream, const kernels::NormForwardArgs& args) {
      if (has_gate(stream)) pass_gate(stream, &planted_gate);
      real().norm_forward(stream, args);
    };
    return gated;
  }();
  return table;
}

}  // namespace
}  // namespace trireme::tests

// The names that the linker gives to the functions of kernels/table.h and their replacements.
extern "C" {
const trireme::kernels::Kernels& __real__ZN7trireme7kernels11cpu_kernelsEv();
const trireme::kernels::Kernels& __real__ZN7trireme7kernels12cuda_kernelsEv();

const trireme::kernels::Kernels& __wrap__ZN7trireme7kernels11cpu_kernelsEv() {
  return trireme::tests::gated_table<__real__ZN7trireme7kernels11cpu_kernelsEv>();
}
const trireme::kernels::Kernels& __wrap__ZN7trireme7kernels12cuda_kernelsEv() {
  return trireme::tests::gated_table<__real__ZN7trireme7kernels12cuda_kernelsEv>();
}
}
