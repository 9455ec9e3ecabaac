// SPDX-License-Identifier: Apache-2.0
#include "agent/guardian/keeper.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>

#include "agent/guardian/guardian.h"
#include "agent/now.h"
#include "base/error.h"
#include "base/log.h"
#include "base/system/start_thread.h"

namespace trireme::agent {
Keeper::Keeper(ProgramCall call, Inheritance inherited)
    : call_(std::move(call)),
      kept_(std::move(inherited.kept)),
      link_(std::make_unique<Link>(std::move(inherited.link))),
      guardian_(inherited.other),
      heard_(now()) {
  thread_ = base::start_thread("that watches the guardian", [this] { keep_company(); });
}

Keeper::~Keeper() {
  if (!thread_.joinable()) return;
  {
    const std::scoped_lock lock(mutex_);
    is_ending_ = true;
    send(LinkMessage::Kind::done);
  }
  changed_.notify_all();
  thread_.join();
}

pid_t Keeper::guardian() const {
  const std::scoped_lock lock(mutex_);
  return guardian_;
}

void Keeper::keep_company() {
  std::unique_lock lock(mutex_);
  double looked = now();
  while (!is_ending_) {
    const auto pause = std::chrono::duration<double>(beat_seconds);
    changed_.wait_for(lock, pause, [this] { return is_ending_; });
    if (is_ending_) return;
    // A process that did not run cannot tell who was silent.
    if (now() - looked > inattention_seconds) heard_ = now();
    looked = now();
    while (link_->receive()) heard_ = now();
    send(LinkMessage::Kind::beat);
    if (now() - heard_ > silent_seconds) {
      base::log_warning("the guardian (process {}) does not react and is replaced", guardian_);
      ::kill(guardian_, SIGKILL);
      replace_guardian();
    } else if (link_->is_closed()) {
      base::log_warning("the guardian (process {}) has ended and is replaced", guardian_);
      replace_guardian();
    }
  }
}

void Keeper::replace_guardian() {
  if (is_own_child_) ::waitpid(guardian_, nullptr, 0);
  heard_ = now();
  try {
    auto [own, other] = Link::make();
    guardian_ = start_in_role(call_, Role::guardian, other.value(), kept_);
    is_own_child_ = true;
    link_ = std::make_unique<Link>(std::move(own));
  } catch (const base::IoError& error) {
    // Tried again with the next look: the ranks run on meanwhile.
    base::log_warning("{}", error.what());
  }
}

void Keeper::send(LinkMessage::Kind kind, const std::string& name, const std::string& text,
                  std::span<const int> descriptors) {
  // A guardian that is gone, or frozen, is replaced by one that is given everything.
  (void)link_->send(kind, name, text, descriptors);
}

void Keeper::put(const std::string& name, const base::Json& what,
                 std::span<const int> descriptors) {
  if (!is_guarded()) return;
  const std::string text = what.dump(-1, ' ', false, base::Json::error_handler_t::replace);
  const std::scoped_lock lock(mutex_);
  kept_.put_copies(name, text, descriptors);
  send(LinkMessage::Kind::put, name, text, descriptors);
}

void Keeper::erase(const std::string& name) {
  if (!is_guarded()) return;
  const std::scoped_lock lock(mutex_);
  kept_.erase(name);
  send(LinkMessage::Kind::erase, name);
}

void Keeper::erase_all(const std::string& prefix) {
  for (const Found& one : all(prefix)) erase(prefix + one.name);
}

std::vector<Keeper::Found> Keeper::all(const std::string& prefix) const {
  std::vector<Found> found;
  const std::scoped_lock lock(mutex_);
  for (const auto& [name, entry] : kept_.entries()) {
    if (!name.starts_with(prefix)) continue;
    Found one{.name = name.substr(prefix.size()), .what = base::Json::parse(entry.text)};
    for (const base::Descriptor& descriptor : entry.descriptors) {
      one.descriptors.push_back(descriptor.value());
    }
    found.push_back(std::move(one));
  }
  return found;
}

std::optional<Keeper::Found> Keeper::find(const std::string& name) const {
  for (Found& one : all(name)) {
    if (one.name.empty()) return std::move(one);
  }
  return std::nullopt;
}

}  // namespace trireme::agent
