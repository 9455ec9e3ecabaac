// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include "base/system/descriptor_limit.h"
#include "base/system/fatal_signals.h"
#include "cli/run/exit_record.h"
#include "cli/shell/args.h"
#include "cli/verbs.h"

int main(int argc, char** argv) {
  trireme::base::report_fatal_signals(::_exit);
  const trireme::base::SignalStack stack;
  trireme::base::raise_descriptor_limit();
  const trireme::cli::ExitRecord exit_record;
  const int code = trireme::cli::run_command(trireme::cli::all_commands(), argc, argv);
  exit_record.leave(code);
  return code;
}
