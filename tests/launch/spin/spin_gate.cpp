// SPDX-License-Identifier: Apache-2.0
#include "tests/launch/spin/spin_gate.h"

namespace trireme::tests {

void pass_gate(device::Stream& stream, SpinGate* gate) {
  if (pass_gate_on_gpu(stream, gate)) return;
  stream.call_host([gate] {
    const int64_t pass = gate_number(gate->passes) + 1;
    set_gate_number(gate->passes, pass);
    const int64_t due = gate_number(gate->due);
    if (due == 0 || pass < due) return;
    set_gate_number(gate->spins, pass);
    while (gate_number(gate->is_open) == 0) {
    }
  });
}

}  // namespace trireme::tests
