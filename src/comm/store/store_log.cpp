// SPDX-License-Identifier: Apache-2.0
#include "comm/store/store_log.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "comm/store/store.h"

namespace trireme::comm {
namespace {

constexpr size_t min_long_bytes = size_t{1} << 20;

base::IoError failure(int error) {
  return base::IoError(
      fmt::format("the memory of the store: {}", std::generic_category().message(error)));
}

std::string bytes_of(int file) {
  struct stat status {};
  if (::fstat(file, &status) != 0) throw failure(errno);
  std::string bytes(static_cast<size_t>(status.st_size), '\0');
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t count =
        ::pread(file, bytes.data() + at, bytes.size() - at, static_cast<off_t>(at));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) throw failure(count < 0 ? errno : EIO);
    at += static_cast<size_t>(count);
  }
  return bytes;
}

void remove_epoch(StoreContent& content, int64_t epoch) {
  const std::string prefix = Store::epoch_key(epoch, "");
  const auto is_of_it = [&](const std::string& key) { return key.starts_with(prefix); };
  std::erase_if(content.values, [&](const auto& one) { return is_of_it(one.first); });
  std::erase_if(content.members, is_of_it);
}

// The codes of the log are those of the protocol; `ok` counts departures.
void apply(StoreContent& content, StoreMessage& change) {
  const auto number = [&] {
    const auto value = integer_from(change.fields.at(0));
    if (!value) throw base::IoError("the memory of the store has no number where one belongs");
    return *value;
  };
  switch (change.code) {
    case StoreCode::set:
      for (size_t i = 0; i + 1 < change.fields.size(); i += 2) {
        content.values[change.fields[i]] = std::move(change.fields[i + 1]);
      }
      return;
    case StoreCode::enter: {
      const int64_t before = std::exchange(content.epoch, number());
      for (const int64_t held : {before - 1, before}) {
        if (held < content.epoch - 1) remove_epoch(content, held);
      }
      return;
    }
    case StoreCode::join:
      content.members.insert(change.fields.at(0));
      content.values.erase(scoped_gone_key(change.fields.at(0)));
      return;
    case StoreCode::leave:
      content.members.erase(change.fields.at(0));
      return;
    case StoreCode::ok:
      content.departures = number();
      return;
    default:
      throw base::IoError("the memory of the store has a change that it does not know");
  }
}

std::string encoded(const StoreContent& content) {
  std::string bytes = encode({StoreCode::enter, {std::to_string(content.epoch)}}) +
                      encode({StoreCode::ok, {std::to_string(content.departures)}});
  for (const auto& [key, value] : content.values) bytes += encode({StoreCode::set, {key, value}});
  for (const std::string& name : content.members) bytes += encode({StoreCode::join, {name}});
  return bytes;
}

void write_at(int file, std::string_view bytes, size_t at) {
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw failure(errno);
    at += static_cast<size_t>(count);
    bytes.remove_prefix(static_cast<size_t>(count));
  }
}

}  // namespace

std::string scope_of(const std::string& scoped_name) {
  constexpr std::string_view epochs = "epoch/";
  if (!scoped_name.starts_with(epochs)) return "";
  return scoped_name.substr(0, scoped_name.find('/', epochs.size()) + 1);
}

std::string scoped_gone_key(const std::string& scoped_name) {
  const std::string scope = scope_of(scoped_name);
  return scope + gone_key(scoped_name.substr(scope.size()));
}

base::Descriptor StoreLog::new_file() {
  base::Descriptor file(::memfd_create("trireme store", MFD_CLOEXEC));
  if (file.value() < 0) throw failure(errno);
  return file;
}

StoreLog::StoreLog(base::Descriptor file, std::function<void(int)> replaced)
    : replaced_(std::move(replaced)) {
  const std::string bytes = bytes_of(file.value());
  while (auto change = frame_at(bytes, bytes_)) apply(content_, *change);
  if (::ftruncate(file.value(), static_cast<off_t>(bytes_)) != 0) throw failure(errno);
  file_.push_back(std::move(file));
}

void StoreLog::append(const StoreMessage& change) {
  const std::string bytes = encode(change);
  write_at(descriptor(), bytes, bytes_);
  bytes_ += bytes.size();
}

void StoreLog::set(const std::pair<std::string, std::string>& one,
                   const std::pair<std::string, std::string>& other) {
  StoreMessage change{StoreCode::set, {one.first, one.second}};
  if (!other.first.empty()) {
    change.fields.insert(change.fields.end(), {other.first, other.second});
  }
  append(change);
}
void StoreLog::enter(int64_t epoch) { append({StoreCode::enter, {std::to_string(epoch)}}); }
void StoreLog::join(const std::string& name) { append({StoreCode::join, {name}}); }
void StoreLog::leave(const std::string& name) { append({StoreCode::leave, {name}}); }
void StoreLog::depart(int64_t departures) {
  append({StoreCode::ok, {std::to_string(departures)}});
}

bool StoreLog::is_long(size_t live_bytes) const {
  return bytes_ > min_long_bytes && bytes_ > 4 * live_bytes;
}

void StoreLog::rewrite(const StoreContent& content) {
  base::Descriptor file = new_file();
  const std::string bytes = encoded(content);
  write_at(file.value(), bytes, 0);
  replaced_(file.value());  // from now on the other server would begin with this file
  file_.clear();
  file_.push_back(std::move(file));
  bytes_ = bytes.size();
}

}  // namespace trireme::comm
