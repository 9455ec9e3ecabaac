// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include "base/system/fatal_signals.h"
#include "cli/shell/args.h"
#include "cli/shell/environment.h"
#include "cli/verbs.h"

int main(int argc, char** argv) {
  trireme::base::report_fatal_signals(::_exit);
  const trireme::base::SignalStack stack;
  trireme::cli::raise_descriptor_limit();
  return trireme::cli::run_command(trireme::cli::all_commands(), argc, argv);
}
