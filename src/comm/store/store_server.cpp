// SPDX-License-Identifier: Apache-2.0
#include "comm/store/store_server.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>

#include "base/error.h"
#include "base/system/start_thread.h"
#include "comm/register/register_requests.h"
#include "comm/store/store.h"
#include "comm/store/store_socket.h"

namespace trireme::comm {
namespace {

StoreConnections::Clock::time_point time_after(double seconds) {
  using Clock = StoreConnections::Clock;
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(
                            std::chrono::duration<double>(std::clamp(seconds, 0.0, 1e8)));
}

void expect(bool holds, const StoreMessage& request) {
  if (holds) return;
  throw base::IoError(fmt::format("request {} with {} fields", static_cast<int>(request.code),
                                  request.fields.size()));
}

std::vector<base::Descriptor> listen_as(const StoreServer::Options& options, int& port,
                                        std::vector<int>& numbers) {
  std::vector<base::Descriptor> sockets;
  for (const int socket : options.sockets) {
    sockets.emplace_back(::fcntl(socket, F_DUPFD_CLOEXEC, 0));
    if (sockets.back().value() < 0) throw base::IoError("a listening socket: " + error_text(errno));
  }
  if (sockets.empty()) {
    sockets = listen_on(options.host, options.port, options.serves_other_hosts);
  }
  port = port_of(sockets.front().value());
  for (const base::Descriptor& socket : sockets) numbers.push_back(socket.value());
  return sockets;
}

}  // namespace

StoreServer::StoreServer(const Options& options)
    : options_(options),
      started_(std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
                   .count()),
      connections_(listen_as(options, port_, sockets_), store_handshake(options.token),
                   options.limits),
      table_(options.limits.max_table_bytes) {
  if (options_.log != nullptr) restore();
  thread_ = base::start_thread("that serves the store", [this] { serve(); });
}

StoreServer::~StoreServer() {
  is_stopping_ = true;
  connections_.wake();
  thread_.join();
}

void StoreServer::serve() {
  while (!is_stopping_) {
    auto end = due_.empty() ? time_after(60) : due_.begin()->first;
    if (!missing_.empty()) end = std::min(end, missing_until_);
    for (const StoreConnections::Event& event : connections_.poll(end)) {
      try {
        if (event.request) {
          handle(event.id, *event.request);
        } else {
          on_disconnect(event.id);
        }
      } catch (const std::exception& error) {  // the request cannot be fulfilled
        refuse(event.id, error.what());
      }
    }
    handle_timeouts();
    if (!missing_.empty() && missing_until_ <= Clock::now()) end_restore();
    if (options_.log != nullptr && options_.log->is_long(table_.bytes())) rewrite_log();
  }
}

void StoreServer::restore() {
  const StoreContent& content = options_.log->content();
  for (const auto& [key, value] : content.values) table_.set_own(key, value);
  epoch_ = content.epoch;
  departures_ = content.departures;
  missing_ = content.members;
  missing_until_ = time_after(options_.rejoin_s);
}

void StoreServer::end_restore() {
  for (const std::string& name : std::exchange(missing_, {})) {
    options_.log->leave(name);
    report_gone(name);
  }
}

void StoreServer::rewrite_log() {
  StoreContent content{.members = missing_, .epoch = epoch_, .departures = departures_};
  for (const auto& [key, entry] : table_.entries()) content.values[key] = entry.value;
  for (const auto& [id, member] : members_) {
    if (!member.joins_at) content.members.insert(member.scoped_name);
  }
  options_.log->rewrite(content);
}

bool StoreServer::is_fenced(Id id) const {
  const auto found = epochs_.find(id);
  return found != epochs_.end() && found->second < epoch_;
}

std::string StoreServer::scoped(Id id, const std::string& key) const {
  const auto found = epochs_.find(id);
  return found == epochs_.end() ? key : Store::epoch_key(found->second, key);
}

void StoreServer::enter(Id id, int64_t epoch) {
  if (epoch < epoch_) {
    connections_.answer(id, {StoreCode::fenced, {std::to_string(epoch_)}});
    return;
  }
  epochs_[id] = epoch;
  if (epoch > epoch_) {
    for (const int64_t held : {epoch_ - 1, epoch_}) {
      if (held < epoch - 1) table_.remove(Store::epoch_key(held, ""));
    }
    epoch_ = epoch;
    if (options_.log != nullptr) options_.log->enter(epoch);
    std::vector<Id> late;
    for (const auto& [client, waiting] : waiting_) {
      if (is_fenced(client)) late.push_back(client);
    }
    for (const Id client : late) end_waiting(client, false);
  }
  connections_.answer(id, {});
}

void StoreServer::handle(Id id, StoreMessage request) {
  std::vector<std::string>& fields = request.fields;
  StoreMessage answer;
  if (is_fenced(id) && request.code != StoreCode::leave && request.code != StoreCode::enter) {
    connections_.answer(id, {StoreCode::fenced, {std::to_string(epoch_)}});
    return;
  }
  const auto scope = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < std::min(end, fields.size()); ++i) fields[i] = scoped(id, fields[i]);
  };
  switch (request.code) {
    case StoreCode::set:
      expect(fields.size() == 2, request);
      scope(0, 1);
      put(fields[0], fields[1]);
      break;
    case StoreCode::set_once:
      expect(fields.size() == 2, request);
      scope(0, 1);
      if (!table_.contains(fields[0])) put(fields[0], fields[1]);
      answer.fields = {table_.find(fields[0])->value};
      break;
    case StoreCode::add:
      expect(fields.size() == 2 || fields.size() == 4, request);
      scope(0, 1);
      answer.fields = {std::to_string(add(id, fields))};
      break;
    case StoreCode::read:
      scope(0, fields.size());
      answer = read(fields);
      break;
    case StoreCode::wait:
      scope(1, fields.size());
      wait(id, fields);
      return;  // answered when the keys exist or the time is over
    case StoreCode::join:
      join(id, fields);
      return;  // answered by handle_timeouts()
    case StoreCode::leave:
      remove_member(id);
      break;
    case StoreCode::enter: {
      const auto epoch = fields.size() == 1 ? integer_from(fields[0]) : std::nullopt;
      expect(epoch && *epoch >= 0, request);
      enter(id, *epoch);
      return;
    }
    case StoreCode::register_read:
    case StoreCode::register_swap: {
      const auto reply = answer_from(options_.run_register, request);
      expect(reply.has_value(), request);
      answer = *reply;
      break;
    }
    case StoreCode::ok:
    case StoreCode::refused:
    case StoreCode::fenced:
      expect(false, request);
  }
  connections_.answer(id, answer);
}

StoreMessage StoreServer::read(const std::vector<std::string>& keys) const {
  StoreMessage answer;
  size_t bytes = 0;
  for (const std::string& key : keys) {
    const StoreTable::Entry* found = table_.find(key);
    if (found == nullptr) {
      answer.fields.insert(answer.fields.end(), {"0", "", ""});
      continue;
    }
    bytes += found->value.size();
    if (bytes > max_frame_bytes) break;  // before memory is allocated for it
    const std::chrono::duration<double> age = Clock::now() - found->set_at;
    answer.fields.insert(answer.fields.end(), {"1", found->value, fmt::format("{}", age.count())});
  }
  // For lengths, ages and the frame's code.
  bytes += keys.size() * 64 + 1;
  if (bytes > max_frame_bytes) {
    throw base::IoError(fmt::format("{} keys hold more than {} bytes: read fewer at a time",
                                    keys.size(), max_frame_bytes));
  }
  return answer;
}

// ---- waiting for keys

void StoreServer::wait(Id id, const std::vector<std::string>& fields) {
  const auto seconds = fields.empty() ? std::nullopt : number_from(fields[0]);
  if (!seconds || *seconds != *seconds) throw base::IoError("wait() needs seconds and keys");
  const Clock::time_point end = time_after(*seconds);
  waiting_[id] = {.keys = {fields.begin() + 1, fields.end()}, .end = end};
  due_.insert({end, id});
  continue_waiting(id);
}

void StoreServer::continue_waiting(Id id) {
  Waiting& waiting = waiting_.at(id);
  while (waiting.found < waiting.keys.size() && table_.contains(waiting.keys[waiting.found])) {
    ++waiting.found;
  }
  if (waiting.found == waiting.keys.size()) {
    end_waiting(id, true);
  } else {
    waiting_for_[waiting.keys[waiting.found]].insert(id);
  }
}

void StoreServer::end_waiting(Id id, bool is_there) {
  const auto found = waiting_.find(id);
  if (found == waiting_.end()) return;
  const Waiting waiting = std::move(found->second);
  waiting_.erase(found);
  due_.erase({waiting.end, id});
  if (waiting.found < waiting.keys.size()) {
    const auto others = waiting_for_.find(waiting.keys[waiting.found]);
    if (others != waiting_for_.end()) {
      others->second.erase(id);
      if (others->second.empty()) waiting_for_.erase(others);
    }
  }
  connections_.answer(id, is_fenced(id) ? StoreMessage{StoreCode::fenced, {std::to_string(epoch_)}}
                                        : StoreMessage{StoreCode::ok, {is_there ? "1" : "0"}});
}

void StoreServer::log_set(const std::string& key) {
  if (options_.log != nullptr) options_.log->set({key, table_.find(key)->value});
}

int64_t StoreServer::add(Id id, const std::vector<std::string>& fields) {
  const auto delta = integer_from(fields[1]);
  if (!delta) throw base::IoError(fmt::format("'{}' cannot be added: it is no integer", fields[1]));
  // A client whose reply was lost asks again, with the same number.
  const std::string asked = fields.size() == 4 ? scoped(id, "added/" + fields[2]) : "";
  if (!asked.empty()) {
    const StoreTable::Entry* last = table_.find(asked);
    if (last != nullptr && last->value.starts_with(fields[3] + " ")) {
      return integer_from(std::string_view(last->value).substr(fields[3].size() + 1)).value_or(0);
    }
  }
  const bool is_new = !table_.contains(fields[0]);
  const int64_t sum = table_.add(fields[0], *delta);
  const std::string answered = fmt::format("{} {}", fields.back(), sum);
  if (!asked.empty()) table_.set(asked, answered);
  if (options_.log != nullptr)
    options_.log->set({fields[0], std::to_string(sum)}, {asked, answered});
  if (is_new) wake_waiting(fields[0]);
  return sum;
}

void StoreServer::put(const std::string& key, std::string value) {
  const bool is_new = !table_.contains(key);
  table_.set(key, std::move(value));
  log_set(key);
  if (is_new) wake_waiting(key);
}

void StoreServer::wake_waiting(const std::string& key) {
  const auto found = waiting_for_.find(key);
  if (found == waiting_for_.end()) return;
  const std::set<Id> ids = std::move(found->second);
  waiting_for_.erase(found);
  for (const Id id : ids) continue_waiting(id);
}

// ---- members

void StoreServer::join(Id id, const std::vector<std::string>& fields) {
  const bool has_all = fields.size() == 3 || fields.size() == 4;
  const std::optional<double> start = has_all ? number_from(fields[2]) : std::nullopt;
  if (!start) throw base::IoError("join() needs a name, a process and its start");
  const std::string handle = fields.size() == 4 ? fields[3] : "";
  const std::string name = scoped(id, fields[0]);
  const auto holder = names_.find(name);
  if (holder != names_.end() && holder->second != id) {
    const Member other = members_.at(holder->second);
    // The same handle again: the end of its earlier connection is not known here yet.
    const bool is_again = !handle.empty() && other.handle == handle;
    if (is_again) {
      remove_member(holder->second);
    } else if (!other.joins_at || other.process_start >= *start) {
      throw base::IoError(fmt::format(
          "'{}' is already {}; {} belongs to another job, or is left over from an earlier attempt",
          fields[0], other.process, fields[1]));
    } else {
      refuse(holder->second, fmt::format("{} has since started as '{}': this process ({}) is left "
                                         "over from an earlier attempt",
                                         fields[1], fields[0], other.process));
    }
  }
  remove_member(id);  // a client has one name only
  const bool is_early = *start + options_.head_start_s < started_;
  const bool may_be_left_over = is_early && (options_.token.empty() || options_.may_have_leftovers);
  const double grace_s = may_be_left_over ? options_.grace_s : 0;
  const Clock::time_point joins_at = time_after(grace_s);
  members_[id] = {.name = fields[0],
                  .scoped_name = name,
                  .process = fields[1],
                  .process_start = *start,
                  .handle = handle,
                  .joins_at = joins_at};
  names_[name] = id;
  due_.insert({joins_at, id});
  missing_.erase(name);
  table_.remove_key(scoped_gone_key(name));
  if (options_.log != nullptr) options_.log->join(name);
}

void StoreServer::refuse(Id id, const std::string& why) {
  connections_.refuse(id, why);
  end_waiting(id, false);
  remove_member(id);
  epochs_.erase(id);
}

void StoreServer::remove_member(Id id) {
  const auto found = members_.find(id);
  if (found == members_.end()) return;
  if (found->second.joins_at) due_.erase({*found->second.joins_at, id});
  names_.erase(found->second.scoped_name);
  if (options_.log != nullptr) options_.log->leave(found->second.scoped_name);
  members_.erase(found);
}

void StoreServer::on_disconnect(Id id) {
  end_waiting(id, false);
  const bool is_of_the_past = is_fenced(id);
  const auto found = members_.find(id);
  const bool has_joined = found != members_.end() && !found->second.joins_at;
  const std::string name = has_joined ? found->second.scoped_name : "";
  remove_member(id);
  epochs_.erase(id);
  if (has_joined && !is_of_the_past) report_gone(name);
}

void StoreServer::report_gone(const std::string& scoped_name) {
  const std::string scope = scope_of(scoped_name);
  const std::array facts = {std::pair(scoped_gone_key(scoped_name), std::to_string(departures_++)),
                            std::pair(scope + any_gone_key, scoped_name.substr(scope.size()))};
  if (options_.log != nullptr) options_.log->depart(departures_);
  for (const auto& [key, value] : facts) {
    const bool is_new = !table_.contains(key);
    table_.set_own(key, value);
    log_set(key);
    if (is_new) wake_waiting(key);
  }
}

void StoreServer::handle_timeouts() {
  while (!due_.empty() && due_.begin()->first <= Clock::now()) {
    const Id id = due_.begin()->second;
    const auto member = members_.find(id);
    if (waiting_.contains(id)) {
      end_waiting(id, false);
    } else if (member != members_.end() && member->second.joins_at) {
      due_.erase(due_.begin());
      member->second.joins_at.reset();
      connections_.answer(id, {StoreCode::ok, {}});
    } else {
      due_.erase(due_.begin());
    }
  }
}

}  // namespace trireme::comm
