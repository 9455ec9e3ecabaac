// SPDX-License-Identifier: Apache-2.0
#include "cli/args.h"
#include "cli/verbs.h"

int main(int argc, char** argv) {
  return trireme::cli::run_command(trireme::cli::all_verbs(), argc, argv);
}
