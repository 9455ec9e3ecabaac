// SPDX-License-Identifier: Apache-2.0
#include "train/verify/verify_run.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "comm/mesh.h"
#include "comm/threads.h"
#include "device/cpu/cpu_device.h"
#include "kernels/table.h"
#include "train/setup/setup.h"
#include "train/verify/verify_source.h"

namespace trireme::train {
namespace {

constexpr double learning_rate = 1e-3;

std::unique_ptr<device::Device> make_device(const VerifyRun& run, const kernels::Kernels& table) {
  if (run.backend.name == "cuda") return std::move(make_platform(run.job.system).device);
  // Worker streams, so that a missing wait has an effect.
  return std::make_unique<device::CpuDevice>(
      table,
      device::CpuDevice::Options{.threads = 1, .streams = device::StreamMode::worker_threads});
}

std::vector<std::vector<float>> read_all(const std::vector<std::string>& names,
                                         const std::function<std::vector<float>(std::string)>& of) {
  std::vector<std::vector<float>> all;
  for (const std::string& name : names) all.push_back(of(name));
  return all;
}

spec::TrafficTable of_steps(const spec::TrafficTable& before, const spec::TrafficTable& after) {
  spec::TrafficTable sent;
  for (const TrafficKind& kind : step_traffic_kinds()) {
    sent.*kind.bytes = after.*kind.bytes - before.*kind.bytes;
  }
  return sent;
}

spec::TrafficTable predicted_of_steps(const VerifyRun& run, const spec::Coord& coord) {
  spec::TrafficTable sent = spec::predict_traffic(run.model, run.plan, coord);
  for (const TrafficKind& kind : step_traffic_kinds()) sent.*kind.bytes *= verify_steps;
  return sent;
}

struct RankParts {
  device::Device& device;
  engine::Engine& engine;
  SampleRecorder& source;
  int64_t& step;
  std::function<double(double)> rate;
};

RankRecord train_rank(const VerifyRun& run, const RankParts& rank, bool reports_progress) {
  engine::Engine& engine = rank.engine;
  RankRecord record;
  for (const engine::Engine::ParamInfo& param : engine.parameters()) {
    record.names.push_back(param.name);
  }
  const auto weights = [&] {
    return read_all(record.names, [&](const std::string& n) { return engine.read_weights(n); });
  };
  record.initial = weights();
  const spec::TrafficTable before = engine.traffic();
  for (rank.step = 0; rank.step < verify_steps; ++rank.step) {
    const double rate = rank.rate(learning_rate);
    if (rank.step == 0) {
      engine.accumulate(rank.source);
      record.grads =
          read_all(record.names, [&](const std::string& n) { return engine.read_grads(n); });
      engine.apply(rate);
    } else {
      engine.step(rank.source, rate);
    }
    record.steps.push_back(engine.report());
    record.samples.push_back(rank.source.take());
    record.routers.push_back(engine.router_stats());
    if (reports_progress && run.step_done) run.step_done();
  }
  record.counted = of_steps(before, engine.traffic());
  record.measured = engine.measured();
  record.ledger_peak = rank.device.ledger().peak();
  record.weights = weights();
  return record;
}

double norm_of(const std::vector<float>& values) {
  double sum = 0;
  for (const float v : values) sum += double{v} * v;
  return std::sqrt(sum);
}

std::vector<float> minus(const std::vector<float>& a, const std::vector<float>& b) {
  std::vector<float> difference(a.size());
  std::transform(a.begin(), a.end(), b.begin(), difference.begin(), std::minus<>());
  return difference;
}

double total(const std::vector<double>& norms) {
  double sum = 0;
  for (const double n : norms) sum += n * n;
  return std::sqrt(sum);
}

// Returns |a - b| / size; infinity if that is not finite.
double error_of(const std::vector<float>& a, const std::vector<float>& b, double size) {
  const double distance = norm_of(minus(a, b));
  if (!std::isfinite(distance)) return std::numeric_limits<double>::infinity();
  return distance == 0 ? 0 : distance / size;
}

// The same for weights. They are stored rounded, so that the smallest earlier difference may become
// a unit in the last place after each step; a unit is negligible beside a step of the optimizer.
double weights_error(const std::vector<float>& a, const std::vector<float>& b, double size) {
  constexpr float rounding = (verify_steps + 1) * std::numeric_limits<float>::epsilon();
  std::vector<float> beyond = minus(a, b);
  for (size_t i = 0; i < beyond.size(); ++i) {
    if (std::abs(beyond[i]) <= rounding * std::abs(b[i])) beyond[i] = 0;
  }
  return error_of(beyond, std::vector<float>(beyond.size()), size);
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

std::vector<Deviation> deviations(const RankRecord& rank, const RankRecord& reference,
                                  const RankRecord& twin) {
  constexpr double min_share = 1e-4;  // of the norm of all parameters together
  std::vector<double> grads, changes;
  for (size_t i = 0; i < rank.names.size(); ++i) {
    grads.push_back(norm_of(reference.grads[i]));
    changes.push_back(norm_of(minus(reference.weights[i], reference.initial[i])));
  }
  const double all_grads = total(grads), all_changes = total(changes);
  std::vector<Deviation> all(rank.names.size());
  for (size_t i = 0; i < all.size(); ++i) {
    Deviation& d = all[i];
    const std::vector<float>& wanted = reference.grads[i];
    const double size = std::max(grads[i], min_share * all_grads);
    d.initial = error_of(rank.initial[i], reference.initial[i], 1);
    d.grad = error_of(rank.grads[i], wanted, size);
    d.weights = weights_error(rank.weights[i], reference.weights[i],
                              std::max(changes[i], min_share * all_changes));
    d.same_bits =
        same_bits(rank.grads[i], twin.grads[i]) && same_bits(rank.weights[i], twin.weights[i]);
    double product = 0;
    for (size_t k = 0; k < wanted.size(); ++k) product += double{rank.grads[i][k]} * wanted[k];
    d.grad_factor = grads[i] > 0 ? product / (grads[i] * grads[i]) : 1;
    std::vector<float> scaled = wanted;
    for (float& v : scaled) v = static_cast<float>(v * d.grad_factor);
    d.grad_residual = error_of(rank.grads[i], scaled, size);
  }
  return all;
}

}  // namespace

std::span<const TrafficKind> step_traffic_kinds() {
  using Table = spec::TrafficTable;
  static constexpr std::array<TrafficKind, 16> kinds = {{{"reduce_grads", &Table::reduce_grads},
                                                         {"gather_grads", &Table::gather_grads},
                                                         {"gather_params", &Table::gather_params},
                                                         {"step_sums", &Table::step_sums},
                                                         {"updates", &Table::updates},
                                                         {"layer_state", &Table::layer_state},
                                                         {"tp_forward", &Table::tp_forward},
                                                         {"tp_backward", &Table::tp_backward},
                                                         {"tp_grads", &Table::tp_grads},
                                                         {"cp_forward", &Table::cp_forward},
                                                         {"cp_backward", &Table::cp_backward},
                                                         {"ep_forward", &Table::ep_forward},
                                                         {"ep_backward", &Table::ep_backward},
                                                         {"pp_activations", &Table::pp_activations},
                                                         {"pp_gradients", &Table::pp_gradients},
                                                         {"pp_table", &Table::pp_table}}};
  return kinds;
}

RankRecord run_one_rank(const VerifyRun& run) {
  const std::unique_ptr<device::Device> device = make_device(run, kernels::cpu_kernels());
  engine::Engine engine(*device, run.model, run.plan, run.backend, run.job.engine);
  int64_t step = 0;
  SampleRecorder source(
      std::make_unique<VerifySource>(run.plan, spec::Coord{}, spec::vocab_of(run.model), step),
      run.plan.layout.micro_batch);
  return train_rank(run, {*device, engine, source, step, [](double rate) { return rate; }}, true);
}

LayoutResult run_layout(const VerifyRun& run, const RankRecord& reference, const RankRecord& twin,
                        const VerifyHooks& hooks) {
  const spec::Sizes& mesh_sizes = run.plan.mesh;
  const int ranks = spec::closing_ranks(mesh_sizes);
  LayoutResult result;
  result.ranks.resize(static_cast<size_t>(ranks));
  comm::ThreadWorld world(ranks, run.job.deadline_s);
  const auto body = [&](int rank) {
    const std::unique_ptr<device::Device> device =
        make_device(run, hooks.kernels ? hooks.kernels(rank) : kernels::cpu_kernels());
    std::unique_ptr<comm::Communicator> communicator = world.communicator(rank, {.name = "world"});
    if (hooks.communicator) communicator = hooks.communicator(rank, std::move(communicator));
    comm::Mesh mesh(*communicator, mesh_sizes);
    engine::EngineOptions options = run.job.engine;
    if (hooks.options) hooks.options(rank, options);
    engine::Engine engine(*device, run.model, run.plan, run.backend, options, &mesh);
    int64_t step = 0;
    std::unique_ptr<engine::MicrobatchSource> share =
        std::make_unique<VerifySource>(run.plan, mesh.coord(), spec::vocab_of(run.model), step);
    if (hooks.source) share = hooks.source(rank, *device, std::move(share));
    SampleRecorder source(std::move(share), run.plan.layout.micro_batch);
    const auto rate = [&](double of) {
      return hooks.learning_rate ? hooks.learning_rate(rank, of) : of;
    };
    const RankRecord record = train_rank(run, {*device, engine, source, step, rate}, rank == 0);
    engine.close(comm::End::finish);

    RankResult& out = result.ranks[static_cast<size_t>(rank)];
    out.table = {.rank = rank,
                 .coord = mesh.coord(),
                 .predicted_bytes = predicted_of_steps(run, mesh.coord()),
                 .counted_bytes = record.counted,
                 .predicted_memory = engine.predicted_memory(),
                 .measured_memory = record.measured};
    out.ledger_peak = record.ledger_peak;
    out.steps = record.steps;
    out.samples = record.samples;
    out.routers = record.routers;
    out.params = deviations(record, reference, twin);
  };
  try {
    comm::run_ranks(world, body);
  } catch (const base::Error& error) {
    return {{}, error.what()};
  }
  return result;
}

}  // namespace trireme::train
