// SPDX-License-Identifier: Apache-2.0
#include "faults.h"

#include <array>
#include <mutex>
#include <string>
#include <vector>

#include "ckpt/disk/forward_disk_test.h"
#include "ckpt/generation/format.h"

namespace trireme::crashlab {
namespace {

using ckpt::DiskEntry;
using ckpt::DiskFile;

class PlantedDisk final : public ckpt::ForwardDisk {
 public:
  PlantedDisk(ckpt::Disk& disk, Fault fault) : ForwardDisk(disk), fault_(fault) {}

  std::unique_ptr<DiskFile> create(const Path& path, int64_t bytes) override {
    return std::make_unique<File>(*this, path, disk_.create(path, bytes));
  }

  void sync_folder(const Path& path) override {
    const bool is_draft = path.filename().string().starts_with("step-");
    if (fault_ == Fault::nothing_synced) return;
    if (fault_ == Fault::draft_folder_not_synced && is_draft) return;
    if (fault_ == Fault::root_not_synced && !is_draft) return;
    disk_.sync_folder(path);
  }

  void rename(const Path& from, const Path& to) override {
    if (fault_ == Fault::rename_by_copying && disk_.exists(from / ckpt::manifest_name)) {
      copy(from, to);
      return;
    }
    disk_.rename(from, to);
    // The deferred operations, under the new name.
    for (auto& file : put_off_) file->sync();
    put_off_.clear();
  }

 private:
  class File final : public ckpt::ForwardFile {
   public:
    File(PlantedDisk& disk, const Path& path, std::unique_ptr<DiskFile> file)
        : ForwardFile(std::move(file)), disk_(disk), path_(path) {}

    void write_at(int64_t offset, std::span<const std::byte> bytes) override {
      if (disk_.fault_ == Fault::writes_cut_short) {
        ForwardFile::write_at(offset, bytes.first(bytes.size() / 2));
        return;
      }
      try {
        ForwardFile::write_at(offset, bytes);
      } catch (const base::IoError&) {
        if (disk_.fault_ != Fault::write_errors_swallowed) throw;
      }
    }
    void sync() override {
      const Fault fault = disk_.fault_;
      const std::string name = path_.filename().string();
      if (fault == Fault::nothing_synced) return;
      if (fault == Fault::data_not_synced && name.starts_with("data-")) return;
      if (fault == Fault::index_not_synced && name.starts_with("index-")) return;
      if (fault == Fault::manifest_not_synced && name == ckpt::manifest_name) return;
      if (fault == Fault::rename_before_data_sync && name.starts_with("data-")) {
        disk_.put_off_.push_back(disk_.disk_.open(path_));
        return;
      }
      try {
        ForwardFile::sync();
      } catch (const base::IoError&) {
        if (fault != Fault::sync_errors_swallowed) throw;
      }
    }

   private:
    PlantedDisk& disk_;
    Path path_;
  };

  void copy(const Path& from, const Path& to) {
    disk_.make_folder(to);
    const std::vector<DiskEntry> entries = disk_.list(from);
    // The manifest first, as a folder may list its entries in any order.
    for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
      const std::string text = ckpt::read_text(disk_, from / entry->name, int64_t{1} << 30);
      ckpt::write_text(disk_, to / entry->name, text);
    }
    disk_.sync_folder(to);
    ckpt::remove_all(disk_, from);
  }

  Fault fault_;
  std::vector<std::unique_ptr<DiskFile>> put_off_;
};

}  // namespace

std::string_view name_of(Fault fault) {
  static constexpr std::array<std::string_view, static_cast<size_t>(Fault::count)> names = {
      "none",
      "draft_folder_not_synced",
      "root_not_synced",
      "data_not_synced",
      "index_not_synced",
      "manifest_not_synced",
      "nothing_synced",
      "rename_before_data_sync",
      "rename_by_copying",
      "writes_cut_short",
      "write_errors_swallowed",
      "sync_errors_swallowed",
      "committed_too_early",
      "old_removed_before_new_is_durable",
      "old_files_removed_before_their_name",
      "index_hash_of_another_file",
      "stale_draft_reused",
      "leftovers_removed_while_writing",
      "rank_not_waited_for",
      "chunk_hashes_not_checked",
      "manifest_hash_not_checked",
      "drafts_taken_for_generations"};
  return names[static_cast<size_t>(fault)];
}

std::unique_ptr<ckpt::Disk> planted(ckpt::Disk& disk, Fault fault) {
  return std::make_unique<PlantedDisk>(disk, fault);
}

}  // namespace trireme::crashlab
