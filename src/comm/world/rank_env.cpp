// SPDX-License-Identifier: Apache-2.0
#include "comm/world/rank_env.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "comm/store/store.h"
#include "comm/store/store_wire.h"

namespace trireme::comm {
namespace {

// Names of one launcher's variables.
struct Names {
  RankSource source;
  const char *rank, *world, *local_rank, *local_world, *node;
};
constexpr Names all_names[] = {
    {RankSource::trireme, "TRIREME_RANK", "TRIREME_WORLD", "TRIREME_LOCAL_RANK",
     "TRIREME_LOCAL_WORLD", "TRIREME_NODE"},
    {RankSource::torchrun, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK"},
    {RankSource::open_mpi, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_NODE_RANK"},
    {RankSource::pmi, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", ""},
    {RankSource::slurm, "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "", "SLURM_NODEID"},
};

class Reader {
 public:
  explicit Reader(const Environment& environment) : environment_(environment) {}

  std::optional<std::string> text(const std::string& name) const {
    const auto found = environment_.find(name);
    if (name.empty() || found == environment_.end() || found->second.empty()) return std::nullopt;
    return found->second;
  }
  std::optional<int> integer(const std::string& name) const {
    const std::optional<std::string> found = text(name);
    if (!found) return std::nullopt;
    const std::optional<int64_t> value = integer_from(*found);
    if (!value || *value < 0 || *value > std::numeric_limits<int>::max()) {
      throw base::ConfigError(
          fmt::format("{}={} in the environment: expected an integer >= 0", name, *found));
    }
    return static_cast<int>(*value);
  }

 private:
  const Environment& environment_;
};

// "8(x4),2" -> the count on node `node`.
std::optional<int> tasks_on_node(const std::string& text, int node) {
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view part = std::string_view(text).substr(begin, end - begin);
    const size_t open = part.find("(x");
    const std::optional<int64_t> tasks = integer_from(part.substr(0, open));
    std::optional<int64_t> times = 1;
    if (open != std::string_view::npos && part.ends_with(")")) {
      times = integer_from(part.substr(open + 2, part.size() - open - 3));
    }
    if (!tasks || !times || *tasks < 1 || *tasks > 1 << 20) return std::nullopt;
    if (node < *times) return static_cast<int>(*tasks);
    node -= static_cast<int>(std::min<int64_t>(*times, node));
    begin = end + 1;
  }
  return std::nullopt;
}

// Returns a deterministic port below the ephemeral ports of most systems.
int port_from(std::string_view job) {
  uint32_t hash = 2166136261U;  // FNV-1a
  for (const char c : job) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  return 15000 + static_cast<int>(hash % 15000U);
}

// torchrun may run its own store on MASTER_PORT.
bool is_master_port_taken(const Reader& reader) {
  return reader.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
}

std::optional<std::string> store_from_master(const Reader& reader) {
  const auto host = reader.text("MASTER_ADDR");
  const auto port = reader.integer("MASTER_PORT");
  if (!host || !port) return std::nullopt;
  return StoreAddress{.host = *host, .port = *port + (is_master_port_taken(reader) ? 1 : 0)}.text();
}

// mpirun starts its daemons as a Slurm step on some of the nodes; its ranks are on those of the
// job.
std::optional<std::string> slurm_node_list(const Reader& reader, RankSource source) {
  std::optional<std::string> nodes;
  const bool is_mpi = source == RankSource::open_mpi || source == RankSource::pmi;
  if (!is_mpi) nodes = reader.text("SLURM_STEP_NODELIST");
  if (!nodes) nodes = reader.text("SLURM_JOB_NODELIST");
  if (!nodes) nodes = reader.text("SLURM_NODELIST");
  return nodes;
}

std::optional<std::string> store_from_slurm(const Reader& reader, RankSource source) {
  const auto nodes = slurm_node_list(reader, source);
  if (!nodes) return std::nullopt;
  const char* const step = source == RankSource::slurm ? "SLURM_STEP_ID" : "PMIX_NAMESPACE";
  const std::string job =
      reader.text("SLURM_JOB_ID").value_or("0") + "." + reader.text(step).value_or("0");
  return StoreAddress{.host = expand_node_list(*nodes).front(), .port = port_from(job)}.text();
}

// Sets the address of the store, or how it will be found.
void find_store(const Reader& reader, RankInfo& info) {
  if (const auto given = reader.text("TRIREME_STORE")) {
    info.store = parse_store_address(*given).text();
    return;
  }
  if (const auto master = store_from_master(reader)) {
    info.store = *master;
    if (is_master_port_taken(reader)) info.more_ports = 3;
    return;
  }
  const auto descriptor = reader.integer("PMI_FD");
  if (info.source == RankSource::pmi && descriptor) {
    info.pmi_descriptor = *descriptor;
    return;
  }
  if (info.source == RankSource::slurm || info.source == RankSource::open_mpi ||
      info.source == RankSource::pmi) {
    if (const auto slurm = store_from_slurm(reader, info.source)) {
      info.store = *slurm;
      return;
    }
  }
  // All ranks are on one host: use a port that follows from the job's name.
  const auto job = reader.text("PMIX_NAMESPACE");
  if (info.local_world == info.world && job) {
    info.store = StoreAddress{.host = "127.0.0.1", .port = port_from(*job)}.text();
    return;
  }
  info.store_problem = fmt::format(
      "{} ranks (from {}) on several hosts have no address to rendezvous at: set MASTER_ADDR and "
      "MASTER_PORT, or TRIREME_STORE=host:port of rank 0 (or the path of a shared folder), for all "
      "ranks",
      info.world, name_of(info.source));
}

// Returns whether Slurm set the variables of PMI (srun --mpi=pmi2). Its own variables contain more.
bool is_pmi_of_slurm(const Reader& reader) {
  const bool has_step = reader.text("SLURM_STEP_ID") || reader.text("SLURM_STEPID");
  return has_step && !reader.text("MPI_LOCALRANKID") && reader.text("PMI_RANK") &&
         reader.text("PMI_RANK") == reader.text("SLURM_PROCID") &&
         reader.text("PMI_SIZE") == reader.text("SLURM_NTASKS");
}

// Returns a text that all ranks of one attempt of one job share, and no other process has.
std::string token_of(const Reader& reader, RankSource source) {
  if (const auto given = reader.text("TRIREME_TOKEN")) return *given;
  const auto joined = [&](std::initializer_list<const char*> names) {
    std::string token;
    for (const char* name : names) token += "/" + reader.text(name).value_or("");
    return token.size() == names.size() ? std::string() : token;  // slashes alone
  };
  switch (source) {
    case RankSource::torchrun:
      // The run's id is "none" unless the user gives one.
      if (joined({"TORCHELASTIC_RUN_ID"}).empty()) return "";
      return joined({"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_PORT"});
    case RankSource::open_mpi:
      return joined({"PMIX_NAMESPACE", "SLURM_JOB_ID", "SLURM_RESTART_COUNT"});
    case RankSource::pmi:
    case RankSource::slurm:
      return joined({"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"});
    case RankSource::none:
    case RankSource::trireme:
      return "";
  }
  return "";
}

std::optional<RankInfo> read_source(const Reader& reader, const Names& names,
                                    std::vector<std::string>& warnings) {
  const auto rank = reader.integer(names.rank), world = reader.integer(names.world);
  if (!rank && !world) return std::nullopt;
  if (!rank || !world) {
    // RANK or WORLD_SIZE alone may belong to another program; TRIREME_RANK does not.
    const std::string half = fmt::format("{} is set and {} is not", rank ? names.rank : names.world,
                                         rank ? names.world : names.rank);
    if (names.source == RankSource::trireme) throw base::ConfigError(half);
    // Inside a Slurm allocation SLURM_NTASKS alone is normal.
    if (names.source != RankSource::slurm) warnings.push_back(half + ": ignored");
    return std::nullopt;
  }
  if (names.source == RankSource::slurm && *rank == 0 && !reader.text("SLURM_STEP_ID") &&
      !reader.text("SLURM_STEPID")) {
    if (*world > 1) {
      warnings.push_back(fmt::format(
          "inside a Slurm allocation of {} tasks, but not started by srun: running as one process",
          *world));
    }
    return std::nullopt;
  }
  RankInfo info{.rank = *rank, .world = *world, .source = names.source};
  if (*world < 1 || *rank >= *world) {
    throw base::ConfigError(fmt::format("{}={} and {}={}: ranks of a world of {} are 0 to {}",
                                        names.rank, *rank, names.world, *world, *world,
                                        *world - 1));
  }
  if (names.source != RankSource::open_mpi) info.node = reader.integer(names.node).value_or(0);
  const auto local_rank = reader.integer(names.local_rank);
  auto local_world = reader.integer(names.local_world);
  if (names.source == RankSource::slurm) {
    auto tasks = reader.text("SLURM_STEP_TASKS_PER_NODE");
    if (!tasks) tasks = reader.text("SLURM_TASKS_PER_NODE");
    if (tasks) local_world = tasks_on_node(*tasks, info.node);
  }
  if (!local_rank && !local_world && info.world > 1) {
    warnings.push_back(
        fmt::format("{} is not set: assuming that all ranks are on one host", names.local_rank));
  }
  info.local_world = local_world.value_or(info.world);
  info.local_rank = local_rank.value_or(info.rank % std::max(1, info.local_world));
  if (info.local_world < 1 || info.local_rank >= info.local_world ||
      info.local_world > info.world) {
    throw base::ConfigError(fmt::format(
        "{} sets local rank {} of {} in a world of {}: a local rank must be below the number of "
        "local ranks, which is at most the size of the world",
        name_of(names.source), info.local_rank, info.local_world, info.world));
  }
  return info;
}

}  // namespace

const char* name_of(RankSource source) {
  switch (source) {
    case RankSource::none:
      return "no launcher";
    case RankSource::trireme:
      return "trireme launch";
    case RankSource::torchrun:
      return "torchrun";
    case RankSource::open_mpi:
      return "Open MPI";
    case RankSource::pmi:
      return "MPI (PMI)";
    case RankSource::slurm:
      return "Slurm";
  }
  return "";
}

std::string RankInfo::text() const {
  if (source == RankSource::none) return "one rank (no launcher in the environment)";
  std::string text = fmt::format("rank {} of {}, local rank {} of {} on node {}, from {}", rank,
                                 world, local_rank, local_world, node, name_of(source));
  if (!store.empty()) text += fmt::format("; store at {}", store);
  if (nodes.empty()) return text;
  constexpr size_t max_shown = 8;
  const size_t shown = std::min(nodes.size(), max_shown);
  return text +
         fmt::format("; {} node{}: {}{}", nodes.size(), nodes.size() == 1 ? "" : "s",
                     fmt::join(nodes.begin(), nodes.begin() + static_cast<ptrdiff_t>(shown), ", "),
                     shown < nodes.size() ? ", ..." : "");
}

bool debug_from(const Environment& environment) {
  const std::string text = Reader(environment).text("TRIREME_COMM_DEBUG").value_or("0");
  if (text != "0" && text != "1") {
    throw base::ConfigError(fmt::format("TRIREME_COMM_DEBUG={}: expected 0 or 1", text));
  }
  return text == "1";
}

int threads_from(const Environment& environment, std::vector<std::string>& warnings) {
  const auto text = Reader(environment).text("OMP_NUM_THREADS");
  if (!text) return 0;
  const std::optional<int64_t> threads = integer_from(text->substr(0, text->find(',')));
  constexpr int64_t max_threads = 4096;  // as system.threads
  if (threads && *threads >= 1 && *threads <= max_threads) return static_cast<int>(*threads);
  warnings.push_back(fmt::format("OMP_NUM_THREADS={} is ignored: expected an integer from 1 to {}",
                                 *text, max_threads));
  return 0;
}

RankInfo detect_rank(const Environment& environment) {
  const Reader reader(environment);
  std::optional<RankInfo> chosen;
  std::vector<std::string> warnings;
  for (const Names& names : all_names) {
    if (names.source == RankSource::pmi && is_pmi_of_slurm(reader)) continue;
    std::optional<RankInfo> found;
    try {
      found = read_source(reader, names, warnings);
    } catch (const base::ConfigError& error) {
      if (!chosen) throw;
      warnings.push_back(fmt::format("{}; using {}", error.what(), name_of(chosen->source)));
      continue;
    }
    if (!found) continue;
    if (!chosen) {
      chosen = std::move(found);
    } else if (found->rank != chosen->rank || found->world != chosen->world) {
      // This also happens if srun starts one torchrun or one `trireme launch` per node.
      warnings.push_back(fmt::format("{} sets rank {} of {}, but {} sets rank {} of {}: using {}",
                                     name_of(chosen->source), chosen->rank, chosen->world,
                                     name_of(found->source), found->rank, found->world,
                                     name_of(chosen->source)));
    }
  }
  if (!chosen && reader.text("PMI_PORT") && reader.text("PMI_ID")) {
    throw base::ConfigError(fmt::format(
        "MPI's launcher sets PMI_PORT={} instead of PMI_RANK, PMI_SIZE and PMI_FD: start mpirun "
        "without -pmi-port",
        *reader.text("PMI_PORT")));
  }
  RankInfo info = chosen.value_or(RankInfo{});
  info.warnings = std::move(warnings);
  info.flight_folder = reader.text("TRIREME_FLIGHT").value_or("");
  if (info.source == RankSource::torchrun) {
    info.error_file = reader.text("TORCHELASTIC_ERROR_FILE").value_or("");
  }
  info.is_watched = info.source == RankSource::trireme;
  // RANK and WORLD_SIZE alone may be set by hand, in a shell that exits.
  info.has_launcher =
      info.source != RankSource::none &&
      (info.source != RankSource::torchrun || reader.text("TORCHELASTIC_RUN_ID").has_value());
  if (info.is_watched) info.life_line = reader.integer("TRIREME_LIFE_LINE").value_or(-1);
  if (info.is_watched) info.memory_fd = reader.integer("TRIREME_MEMORY_FD").value_or(-1);
  if (info.is_watched) {
    info.peer_memory_fd = reader.integer("TRIREME_PEER_MEMORY_FD").value_or(-1);
  }
  info.debug = debug_from(environment);
  info.cpu_threads = threads_from(environment, info.warnings);
  if (info.is_watched) {
    info.epoch = reader.integer("TRIREME_EPOCH").value_or(0);
    info.is_elastic = reader.text("TRIREME_ELASTIC").has_value();
    info.joins = reader.text("TRIREME_JOINS").has_value();
    info.spare = reader.text("TRIREME_SPARE").value_or("");
  }
  if (const auto deadline = reader.text("TRIREME_DEADLINE")) {
    const auto seconds = number_from(*deadline);
    if (!seconds || !(*seconds > 0)) {
      throw base::ConfigError(fmt::format("TRIREME_DEADLINE={}: expected seconds > 0", *deadline));
    }
    info.deadline_s = *seconds;
  }
  if (info.world == 1 && !info.is_watched) return info;
  if (const auto nodes = slurm_node_list(reader, info.source)) {
    try {
      info.nodes = expand_node_list(*nodes);
    } catch (const base::ConfigError& error) {  // not needed if the store is known
      info.warnings.emplace_back(error.what());
    }
  }
  find_store(reader, info);
  info.token = token_of(reader, info.source);
  info.has_secret_token = reader.text("TRIREME_TOKEN").has_value();
  info.knows_attempt = !info.token.empty();
  info.host_name = reader.text("MPIR_CVAR_CH3_INTERFACE_HOSTNAME").value_or("");
  info.hosts_store = info.rank == 0 && !info.is_watched && !info.store.empty() &&
                     !parse_store_address(info.store).is_folder;
  return info;
}

Environment environment_for(const RankInfo& info) {
  Environment out = {{"TRIREME_RANK", std::to_string(info.rank)},
                     {"TRIREME_WORLD", std::to_string(info.world)},
                     {"TRIREME_LOCAL_RANK", std::to_string(info.local_rank)},
                     {"TRIREME_LOCAL_WORLD", std::to_string(info.local_world)},
                     {"TRIREME_NODE", std::to_string(info.node)},
                     {"TRIREME_EPOCH", std::to_string(info.epoch)},
                     {"TRIREME_STORE", info.store}};
  if (info.deadline_s > 0) out["TRIREME_DEADLINE"] = fmt::format("{}", info.deadline_s);
  if (!info.flight_folder.empty()) out["TRIREME_FLIGHT"] = info.flight_folder;
  if (!info.token.empty()) out["TRIREME_TOKEN"] = info.token;
  if (info.life_line >= 0) out["TRIREME_LIFE_LINE"] = std::to_string(info.life_line);
  if (info.is_elastic) out["TRIREME_ELASTIC"] = "1";
  if (info.joins) out["TRIREME_JOINS"] = "1";
  if (!info.spare.empty()) out["TRIREME_SPARE"] = info.spare;
  if (info.memory_fd >= 0) out["TRIREME_MEMORY_FD"] = std::to_string(info.memory_fd);
  if (info.peer_memory_fd >= 0) {
    out["TRIREME_PEER_MEMORY_FD"] = std::to_string(info.peer_memory_fd);
  }
  if (info.ending_fd >= 0) {
    out[ending_variable] = fmt::format("{}/{}", info.ending_fd, info.ending_slot);
  }
  return out;
}

}  // namespace trireme::comm
