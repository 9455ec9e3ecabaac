// SPDX-License-Identifier: Apache-2.0
#include "base/build_id.h"

#include <elf.h>
#include <fmt/core.h>
#include <link.h>

#include <cstring>

namespace trireme::base {
namespace {

constexpr size_t aligned(size_t bytes) { return (bytes + 3) / 4 * 4; }

// The first object in the list is the program itself.
int find_note(dl_phdr_info* info, size_t /*bytes*/, void* found) {
  auto& id = *static_cast<std::string*>(found);
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info->dlpi_phdr[i];
    if (header.p_type != PT_NOTE) continue;
    const auto* at = reinterpret_cast<const unsigned char*>(info->dlpi_addr + header.p_vaddr);
    const unsigned char* const end = at + header.p_memsz;
    while (at + sizeof(ElfW(Nhdr)) <= end) {
      ElfW(Nhdr) note;
      std::memcpy(&note, at, sizeof(note));
      const unsigned char* const name = at + sizeof(note);
      const unsigned char* const value = name + aligned(note.n_namesz);
      if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
          std::memcmp(name, "GNU", 4) == 0) {
        for (size_t byte = 0; byte < note.n_descsz; ++byte) {
          id += fmt::format("{:02x}", value[byte]);
        }
        return 1;
      }
      at = value + aligned(note.n_descsz);
    }
  }
  return 1;
}

}  // namespace

std::string build_id() {
  std::string id;
  ::dl_iterate_phdr(find_note, &id);
  return id;
}

}  // namespace trireme::base
