// SPDX-License-Identifier: Apache-2.0
// The readers of files that come from elsewhere, as functions of bytes. libFuzzer calls them with
// bytes that it invents (entry.cpp), the test suite with the files of corpus/ (corpus_test.cpp).
#pragma once

#include <cstddef>
#include <span>

namespace trireme::fuzz {

// libFuzzer and the test hold the bytes in memory of exactly their size, so that a sanitizer sees
// an overrun.
using Input = std::span<const std::byte>;

// Each gives the input to one reader and checks what was read. True if the reader took it, false if
// it refused with base::Error. Anything else is a finding: another exception, a broken
// TRIREME_CHECK, a crash, a hang. REQUIRES: one thread.
bool read_config(Input);       // a run's configuration, TOML or resolved JSON
bool read_model(Input);        // a model: Hugging Face config.json, or TOML
bool read_megatron(Input);     // the .idx beside a .bin of 16 bytes
bool read_llmc(Input);         // llm.c's .bin
bool read_safetensors(Input);  // a safetensors file
bool read_checkpoint(Input);   // manifest or index of a checkpoint, with or without its last line

}  // namespace trireme::fuzz
