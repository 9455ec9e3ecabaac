// SPDX-License-Identifier: Apache-2.0
// The lists of tables of the schema: data sets and phases.
#include <fmt/format.h>

#include "config/key_list.h"
#include "config/schema.h"

namespace trireme::config {
namespace {

const std::vector<std::string_view> formats = {"auto", "megatron", "llmc", "nanogpt", "text"};
const std::vector<std::string_view> token_types = {"u16", "u32"};

std::vector<Key> dataset_keys(Config& c, size_t element) {
  Dataset& d = c.training.dataset[element];
  KeyList k;
  k.section(element_section("training.dataset", element));
  k.text("path", d.path, "token file, or prefix of a .bin/.idx pair");
  k.require();
  k.text("name", d.name, "name in messages, metrics and phases; empty: the last part of the path");
  k.number("weight", d.weight, {.low = 0, .high = 1e12},
           "share of the samples, relative to the other weights; 0: only in phases that name it");
  k.number("max_epochs", d.max_epochs, {.low = 0, .high = 1e6},
           "the data set leaves the mixture after so many epochs; 0: no limit");
  k.number("max_tokens", d.max_tokens, {.low = 0, .high = 4e18},
           "the data set leaves the mixture after so many tokens; 0: no limit");
  k.choice("format", d.format, formats, "format of the data; auto: detected from its first bytes");
  k.choice("dtype", d.dtype, token_types, "token type of files without a header");
  return k.take();
}

std::vector<Key> validation_keys(Config& c, size_t element) {
  ValidationDataset& d = c.validation.dataset[element];
  KeyList k;
  k.section(element_section("validation.dataset", element));
  k.text("path", d.path, "token file, or prefix of a .bin/.idx pair");
  k.require();
  k.text("name", d.name, "name in messages and metrics; empty: the last part of the path");
  k.choice("format", d.format, formats, "format of the data; auto: detected from its first bytes");
  k.choice("dtype", d.dtype, token_types, "token type of files without a header");
  return k.take();
}

std::vector<Key> phase_keys(Config& c, size_t element) {
  Phase& p = c.phase[element];
  KeyList k;
  k.section(element_section("phase", element));
  k.text("name", p.name, "name in messages and logs; empty: its number");
  k.number("from_step", p.from_step, {.low = 1, .high = count_limit, .or_value = -1},
           "first step of the phase, counted from 1");
  k.number("from_tokens", p.from_tokens, {.low = 0, .high = 4e18, .or_value = -1},
           "instead of from_step: the phase begins with the first step before which the run has "
           "read so many tokens");
  k.table("weights", p.weights, {.low = 0, .high = 1e12},
          "weights of the mixture by name of the data set, as { web = 3, code = 1 }; one that is "
          "not named gives no samples; empty: as before");
  k.number("seq_len", p.seq_len, {.low = 1, .high = 1 << 24, .or_value = -1},
           "tokens in a sequence; -1: as before");
  k.number("global_batch_size", p.global_batch_size, {.low = 1, .high = 1 << 24, .or_value = -1},
           "sequences in one step; -1: as before");
  k.number("local_batch_size", p.local_batch_size, {.low = 1, .high = 1 << 20, .or_value = -1},
           "sequences in one micro-batch; -1: as before");
  k.number("lr", p.lr, {.low = 0, .high = 1000, .or_value = -1},
           "constant learning rate; 0: that of [lr_scheduler]; -1: as before");
  k.number("lr_factor", p.lr_factor, {.low = 0, .high = 1000, .or_value = -1},
           "factor on the learning rate of [lr_scheduler]; -1: as before");
  return k.take();
}

}  // namespace

std::string element_section(std::string_view list, size_t element) {
  return fmt::format("{}[{}]", list, element);
}

const std::vector<List>& lists() {
  static const std::vector<List> all = {
      {.name = "training.dataset",
       .help = "Data sets that are mixed, instead of `training.dataset_path`, `dataset_format` and "
               "`dataset_dtype`.",
       .max_elements = 4096,
       .size = [](const Config& c) { return c.training.dataset.size(); },
       .resize = [](Config& c, size_t size) { c.training.dataset.resize(size); },
       .keys = dataset_keys},
      {.name = "validation.dataset",
       .help = "Several validation sets, instead of `validation.dataset_path`; each has its own "
               "loss in the metrics.",
       .max_elements = 256,
       .size = [](const Config& c) { return c.validation.dataset.size(); },
       .resize = [](Config& c, size_t size) { c.validation.dataset.resize(size); },
       .keys = validation_keys},
      {.name = "phase",
       .help = "What changes during the run. It begins with the keys of the other sections; every "
               "phase changes some of them from a step or a number of tokens on.",
       .max_elements = 1000,
       .size = [](const Config& c) { return c.phase.size(); },
       .resize = [](Config& c, size_t size) { c.phase.resize(size); },
       .keys = phase_keys}};
  return all;
}

}  // namespace trireme::config
