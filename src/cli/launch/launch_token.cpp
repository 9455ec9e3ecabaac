// SPDX-License-Identifier: Apache-2.0
#include "cli/launch/launch_token.h"

#include "base/error.h"
#include "cli/run/train_call.h"
#include "cli/shell/environment.h"
#include "comm/store/store_socket.h"
#include "comm/world/rank_env.h"

namespace trireme::cli {

std::unique_ptr<comm::JobTokenFile> settle_token(agent::JobOptions& options,
                                                 const std::string& run_folder) {
  const comm::Environment environment = process_environment();
  const auto given = environment.find("TRIREME_TOKEN");
  const bool is_given = given != environment.end() && !given->second.empty();
  if (is_given || options.all_nodes() == 1) {
    options.token = is_given ? given->second : comm::random_token();
    return nullptr;
  }
  options.token = options.public_name;
  const comm::StoreAddress address = comm::parse_store_address(options.rendezvous);
  if (address.is_folder || !comm::listens_beyond_loopback(address.host, true)) return nullptr;
  if (run_folder.empty()) {
    throw base::ConfigError(comm::no_token_message(fmt::format("node {}", options.node)));
  }
  if (options.node != 0) {
    options.token_folder = run_folder;
    return nullptr;
  }
  auto file = std::make_unique<comm::JobTokenFile>(run_folder, options.public_name);
  options.token = file->token();
  return file;
}

std::unique_ptr<comm::JobTokenFile> left_token(const agent::JobOptions& options,
                                               const std::string& run_folder) {
  const bool is_left = options.node == 0 && !run_folder.empty() &&
                       comm::read_job_token(run_folder, options.public_name) == options.token;
  if (!is_left) return nullptr;
  return std::make_unique<comm::JobTokenFile>(run_folder, options.public_name, options.token);
}

void find_token_after_failure(const Args& args, agent::JobOptions& options) {
  const std::string folder = args.has("--program") ? "" : run_folder_of(args);
  options.token = options.public_name;
  if (options.node != 0 && !folder.empty()) (void)settle_token(options, folder);
}

}  // namespace trireme::cli
