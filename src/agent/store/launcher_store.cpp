// SPDX-License-Identifier: Apache-2.0
#include "agent/store/launcher_store.h"

#include <fcntl.h>

#include <array>
#include <utility>

#include "agent/guardian/kept_names.h"
#include "agent/signals.h"

namespace trireme::agent {

bool LauncherStore::is_folder() const {
  return options_.all_nodes() > 1 && comm::parse_store_address(options_.rendezvous).is_folder;
}

void LauncherStore::open_register() {
  if (!options_.is_elastic || options_.node != 0 || is_folder()) return;
  register_ = std::make_unique<RunRegister>(options_.run_folder);
}

void LauncherStore::open_log() {
  if (!keeper_.is_guarded() || options_.node != 0) return;
  const auto left = keeper_.find(kept_store_log);
  const auto keep_log = [this](int file) { keeper_.put(kept_store_log, {}, std::array{file}); };
  const bool is_new = !left || left->descriptors.empty();
  log_ = std::make_unique<comm::StoreLog>(
      is_new ? comm::StoreLog::new_file()
             : base::Descriptor(::fcntl(left->descriptors.front(), F_DUPFD_CLOEXEC, 3)),
      keep_log);
  keep_log(log_->descriptor());
}

Crew::Address LauncherStore::open() {
  open_register();
  open_log();
  StoreParts parts{.run_register = register_ ? &register_->get() : nullptr, .log = log_.get()};
  if (log_ != nullptr) {
    if (const auto sockets = keeper_.find(kept_sockets)) parts.sockets = sockets->descriptors;
  }
  JobStore opened = open_job_store(options_, options_.deadline_s, SignalQueue::stop(), parts);
  server_ = std::move(opened.server);
  run_store_ = std::move(opened.run_store);
  if (log_ != nullptr && server_ != nullptr) keeper_.put(kept_sockets, {}, server_->sockets());
  return {.store = std::move(opened.address), .token = std::move(opened.token)};
}

void LauncherStore::enter(int64_t epoch) {
  epoch_ = enter_epoch(*run_store_, epoch, options_.node);
}

void LauncherStore::forget() {
  for (const char* name : {kept_sockets, kept_store_log}) keeper_.erase(name);
}

}  // namespace trireme::agent
