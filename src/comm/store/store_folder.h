// SPDX-License-Identifier: Apache-2.0
// A Store in a folder that all hosts share: one file per key, created by rename, so that it is
// either complete or absent. The folder belongs to one run; a second run in it would find the keys
// of the first.
#pragma once

#include <atomic>
#include <filesystem>

#include "base/system/descriptor.h"
#include "comm/store/store.h"

namespace trireme::comm {

class FolderStore final : public Store {
 public:
  // Creates the folder; throws IoError.
  explicit FolderStore(std::filesystem::path folder);

  void set(const std::string& key, const std::string& value) override;
  std::string set_once(const std::string& key, const std::string& value) override;
  int64_t add(const std::string& key, int64_t delta) override;
  std::vector<std::optional<Aged>> read_aged(std::span<const std::string> keys) override;
  [[nodiscard]] bool wait(std::span<const std::string> keys, double deadline_s) override;
  std::unique_ptr<Store> another() const override;
  std::string address() const override { return folder_.string(); }
  void enter(int64_t epoch) override;

 private:
  // Throws Fenced if a higher epoch has begun.
  void check_epoch() const;
  int64_t newest_epoch() const;  // -1: none
  base::Descriptor lock() const;
  std::filesystem::path path_of(const std::string& key) const;
  std::filesystem::path write_beside(const std::string& value) const;

  const std::filesystem::path folder_;
  std::atomic<int64_t> epoch_ = -1;  // of this handle; -1: none
};

}  // namespace trireme::comm
