// SPDX-License-Identifier: Apache-2.0
#include "comm/store/store.h"

#include <fmt/format.h>

#include <charconv>
#include <string_view>

#include "base/error.h"
#include "comm/store/store_folder.h"
#include "comm/store/store_tcp.h"

namespace trireme::comm {

std::string Store::epoch_key(int64_t epoch, const std::string& key) {
  return fmt::format("epoch/{}/{}", epoch, key);
}

base::Fenced fenced_by(int64_t newest, int64_t own) {
  return base::Fenced(
      fmt::format("epoch {} of this run has begun; this process belongs to epoch {}", newest, own));
}

std::string Store::get(const std::string& key, double deadline_s) {
  if (!wait({&key, 1}, deadline_s)) {
    throw base::CommAborted(fmt::format("no process set '{}' in the store at {} within {:g} s", key,
                                        address(), deadline_s));
  }
  std::optional<std::string> value = try_get(key);
  if (!value) {
    throw base::CommAborted(fmt::format("'{}' vanished from the store at {}", key, address()));
  }
  return *std::move(value);
}

std::vector<std::optional<std::string>> Store::read(std::span<const std::string> keys) {
  std::vector<std::optional<std::string>> texts;
  for (std::optional<Aged>& value : read_aged(keys)) {
    texts.push_back(value ? std::optional(std::move(value->text)) : std::nullopt);
  }
  return texts;
}

std::optional<std::string> Store::try_get(const std::string& key) { return read({&key, 1}).at(0); }

std::string StoreAddress::text() const {
  if (is_folder) return folder;
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

StoreAddress parse_store_address(const std::string& text) {
  const auto wrong = [&](std::string_view why) {
    return base::ConfigError(fmt::format(
        "store '{}': {}; allowed are host:port, [address]:port and the path of a shared folder",
        text, why));
  };
  std::string_view rest = text;
  if (rest.starts_with("file://")) rest.remove_prefix(7);
  if (rest.starts_with("/") || rest.starts_with("./") || rest.starts_with("../")) {
    return {.is_folder = true, .folder = std::string(rest)};
  }
  if (rest.starts_with("tcp://")) rest.remove_prefix(6);
  const size_t colon = rest.rfind(':');
  if (colon == std::string_view::npos) throw wrong("the port is missing");
  std::string_view host = rest.substr(0, colon);
  const std::string_view port_text = rest.substr(colon + 1);
  if (host.starts_with("[") && host.ends_with("]")) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    throw wrong("an IPv6 address needs brackets");
  }
  if (host.empty()) throw wrong("the host is missing");
  int port = 0;
  const auto [end, error] =
      std::from_chars(port_text.data(), port_text.data() + port_text.size(), port);
  if (error != std::errc() || end != port_text.data() + port_text.size() || port < 1 ||
      port > 65535) {
    throw wrong("the port must be a number from 1 to 65535");
  }
  return {.host = std::string(host), .port = port};
}

std::unique_ptr<Store> open_store(const StoreAddress& address, const StoreOptions& options) {
  if (address.is_folder) return std::make_unique<FolderStore>(address.folder);
  return std::make_unique<TcpStore>(address, options);
}

std::unique_ptr<Store> open_store(const StoreAddress& address, double deadline_s) {
  return open_store(address, StoreOptions{.deadline_s = deadline_s});
}

}  // namespace trireme::comm
