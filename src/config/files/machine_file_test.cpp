// SPDX-License-Identifier: Apache-2.0
#include "config/files/machine_file.h"

#include <map>

#include "base/text/json.h"
#include "config/document.h"
#include "config/files/machine_keys.h"
#include "config/files_test.h"

namespace trireme::config {
namespace {

namespace fs = std::filesystem;

const std::string processor =
    "[processor]\nmemory_gigabytes = 80\nfp32_tflops = 20\nbf16_tflops = 312\n"
    "gigabytes_per_second = 2000\nunits = 108\ngemm_reach = 0.7\ngemm_ramp = 100\n"
    "attention_forward = 0.5\nattention_backward = 0.4\nattention_ramp = 300\n"
    "attention_head = 0.2\nmemory_reach = 0.8\nlaunch_microseconds = 2\n";
const std::string good_machine =
    "format = 2\nsource = 'a page'\n" + processor + "[domain]\nsize = 1\n";

spec::Machine read_machine(const std::string& text) { return machine_from_text(text, "m.toml"); }
std::string machine_refusal(const std::string& text) {
  return message_of([&] { (void)read_machine(text); });
}

TEST(MachineFile, units_of_the_file_become_bytes_operations_and_seconds) {
  const spec::Machine m = read_machine(
      good_machine + "link_gigabytes_per_second = 300\nlatency_microseconds = 2.5\nreach = 0.9\n");
  EXPECT_EQ(m.name, "m.toml");
  EXPECT_EQ(m.processor.memory_bytes, 80e9);
  EXPECT_EQ(m.processor.bf16_flops, 312e12);
  EXPECT_EQ(m.processor.bytes_per_second, 2e12);
  EXPECT_DOUBLE_EQ(m.processor.launch_seconds, 2e-6);
  EXPECT_EQ(m.processor.fp8_flops, 0);
  EXPECT_EQ(m.domain.size, 1);
  EXPECT_EQ(m.domain.link.bytes_per_second, 300e9);
  EXPECT_DOUBLE_EQ(m.domain.link.latency, 2.5e-6);
  EXPECT_EQ(m.network.link.bytes_per_second, 0);
}

// Every key gets a value that is not its default, so that a key that is not written or read is
// found.
TEST(MachineFile, text_round_trips_every_key) {
  MachineKeys keys{spec::Machine{}};
  double next = 0.50390625;
  for (const Key& key : keys.keys()) {
    if (auto* const* number = std::get_if<double*>(&key.field)) {
      const bool is_small = key.range.contains(next);
      **number = is_small ? next : next + key.range.low;
      next += 0.00390625;
    } else if (auto* const* whole = std::get_if<int64_t*>(&key.field)) {
      if (key.name != "format") **whole = 5;
    } else if (auto* const* flag = std::get_if<bool*>(&key.field)) {
      **flag = true;
    } else if (auto* const* text = std::get_if<std::string*>(&key.field)) {
      **text = "of \"" + key.path() + "\" \\ \n\t.";
    }
  }
  spec::Machine machine = keys.machine();
  machine.processor.reserved_bytes = 0.125e9;
  const std::string text = machine_text(machine, "one\ntwo");
  EXPECT_TRUE(text.starts_with("# one\n# two\nformat = 2\n")) << text;
  const spec::Machine again = read_machine(text);
  EXPECT_EQ(again.sources, machine.sources);
  EXPECT_EQ(again.source, machine.source);
  EXPECT_EQ(again.name, machine.name);
  EXPECT_TRUE(again.network.in_network_reduction);
  EXPECT_EQ(machine_text(again, "one\ntwo"), text);
  MachineKeys wanted{machine}, found{again};
  for (size_t i = 0; i < wanted.keys().size(); ++i) {
    EXPECT_EQ(value_text(found.keys()[i]), value_text(wanted.keys()[i])) << wanted.keys()[i].path();
  }
}

TEST(MachineFile, refusals_name_file_line_and_remedy) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"format = 1\n[[gemm]]\nm = 1\n", "m.toml:1: format = 1: a machine file for planning"},
      {"format = 3\n", "format = 3"},
      {"name = 'x'\n", "m.toml: format: required, but not given"},
      {"format = 2\nsource = 'a'\n[domain]\nsize = 1\n",
       "m.toml: processor.units: required, but not given (multiprocessors"},
      {good_machine + "widht = 3\n", "m.toml:19: domain.widht: unknown key"},
      {good_machine + "[procesor]\n",
       "m.toml:19: [procesor]: unknown section; did you mean 'processor'?"},
      {"format = 2\nsource = 'a'\njitter = 2\n" + processor + "[domain]\nsize = 1\n",
       "m.toml:3: jitter = 2: must be from 0 to 1; nearest: 1"},
      {"format = 2\nsource = 'a'\n" + processor + "reserved_gigabytes = 81\n[domain]\nsize = 1\n",
       "m.toml:17: processor.reserved_gigabytes: must be below memory_gigabytes"},
      {"format = 2\nsource = 'a'\n" + processor + "fp8_tflops = 624\n[domain]\nsize = 1\n",
       "m.toml:17: processor.fp8_reach: required with this processor.fp8_tflops, but not given"},
      {"format = 2\nsource = 'a'\n" + processor + "[domain]\nsize = 8\n",
       "m.toml:18: domain.link_gigabytes_per_second: required with this domain.size"},
      {good_machine + "[network]\nlink_gigabytes_per_second = 25\n",
       "m.toml:20: network.reach: required with this network.link_gigabytes_per_second"},
      {good_machine + "[sources]\nprocessor.units = 'a'\n",
       "m.toml:20: sources.processor: keys of [sources] must be quoted"},
      {good_machine + "[sources]\n\"processor.unit\" = 'a'\n",
       "sources.processor.unit: unknown key; did you mean 'processor.units'?"},
  };
  for (const auto& [text, wanted] : cases) expect_contains(machine_refusal(text), wanted);
  std::string none = good_machine;
  none.replace(none.find("fp32_tflops = 20"), 16, "fp32_tflops = 0");
  none.replace(none.find("bf16_tflops = 312"), 17, "bf16_tflops = 0");
  expect_contains(machine_refusal(none),
                  "m.toml:5: processor.fp32_tflops and bf16_tflops are both 0");
  EXPECT_THROW((void)machine_from_file("nowhere/m.toml", {}), base::ConfigError);
}

TEST(MachineFile, every_number_needs_a_source) {
  std::string text = "format = 2\n" + processor + "[domain]\nsize = 1\n";
  const std::string message = machine_refusal(text);
  expect_contains(message, "14 problems");
  expect_contains(
      message,
      "m.toml:3: processor.memory_gigabytes: no source; add the source of the number to [sources]");
  expect_contains(message, "m.toml:17: domain.size: no source");
  text += "[sources]\n";
  MachineKeys keys{spec::Machine{}};
  for (const Key& key : keys.keys()) {
    if (key.is_required && key.name != "format") text += "\"" + key.path() + "\" = 'measured'\n";
  }
  EXPECT_EQ(machine_refusal(text), "");
  EXPECT_EQ(read_machine(text).sources.at("processor.units"), "measured");
}

TEST(MachineFile, errors_of_unknown_names_list_the_known_ones_and_how_to_add_one) {
  const TemporaryFolder folder;
  folder.write("a100-80gb.toml", good_machine);
  folder.write("h100.toml", good_machine);
  folder.write("measured/h200.toml", "format = 1\n");
  const std::string message = message_of([&] { (void)machine_from_file("h10", {folder.path()}); });
  expect_contains(message, "no machine 'h10'; did you mean 'h100'? Machines are a100-80gb, h100; ");
  expect_contains(message, "machines/README.md");
  expect_contains(message, "trireme calibrate --out FILE.toml");
  expect_contains(
      message_of([&] { (void)machine_from_file("tpu", {folder.path()}); }),
      "no machine 'tpu'. Machines are a100-80gb, h100; describe another machine in a new file");
  expect_contains(message_of([&] { (void)machine_from_file("h100", {}); }),
                  "no machine files were found");
  EXPECT_EQ(machine_from_file("h100", {folder.path()}).name, "h100");
}

// Peaks as in data/README.md; every number has a source.
TEST(MachineFile, shipped_machines_have_the_peaks_of_their_names) {
  const std::map<std::string, std::pair<double, int64_t>> wanted = {
      {"a100-40gb", {312e12, 8}}, {"a100-80gb", {312e12, 8}}, {"b200", {2250e12, 8}},
      {"b300", {2250e12, 8}},     {"gb200", {2450e12, 72}},   {"gb300", {2450e12, 72}},
      {"h100", {989e12, 8}},      {"h200", {989e12, 8}}};
  const std::vector<fs::path> folders = {source_root() / "machines"};
  for (const std::string& name : machine_names(folders)) {
    const spec::Machine m = machine_from_file(name, folders);
    EXPECT_EQ(m.name, name);
    const spec::Machine again = machine_from_text(machine_text(m), name);
    EXPECT_EQ(machine_text(again), machine_text(m));
    EXPECT_EQ(again.processor.launch_seconds, m.processor.launch_seconds);
    EXPECT_EQ(again.domain.link.bytes_per_second, m.domain.link.bytes_per_second);
  }
  for (const auto& [name, peak_and_size] : wanted) {
    const spec::Machine m = machine_from_file(name, folders);
    EXPECT_EQ(m.name, name);
    EXPECT_EQ(m.processor.bf16_flops, peak_and_size.first) << name;
    EXPECT_EQ(m.domain.size, peak_and_size.second) << name;
    EXPECT_EQ(m.source, "") << name;
    EXPECT_GT(m.network.link.bytes_per_second, 0) << name;
    EXPECT_EQ(machine_json(m)["processor"]["bf16_tflops"], peak_and_size.first / 1e12);
  }
  const spec::Machine cpu = machine_from_file("cpu", folders);
  EXPECT_EQ(cpu.processor.bf16_flops, cpu.processor.fp32_flops);
  EXPECT_EQ(cpu.domain.size, 2);
  const spec::Machine h100 = machine_from_file("h100", folders);
  EXPECT_EQ(h100.processor.bytes_per_second, 3.35e12);
}

// The table of machines/README.md is the list of keys.
TEST(MachineFile, the_page_lists_the_keys) {
  expect_contains(read_text(source_root() / "machines" / "README.md"), machine_keys_page());
}

}  // namespace
}  // namespace trireme::config
