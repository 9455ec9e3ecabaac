// SPDX-License-Identifier: Apache-2.0
#include "engine/step/pipe.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "engine/state/host_floats.h"

namespace trireme::engine {
namespace {

using spec::Axis;
using spec::PipeChannel;
using spec::PipeKind;

// Groups channels into rounds with at most one channel per rank: each round is one split of the
// world.
std::vector<std::vector<PipeChannel>> rounds_of(const std::vector<PipeChannel>& channels) {
  std::vector<std::vector<PipeChannel>> rounds;
  for (const PipeChannel& channel : channels) {
    const auto shares_rank = [&](const PipeChannel& other) {
      return other.from == channel.from || other.from == channel.to || other.to == channel.from ||
             other.to == channel.to;
    };
    const auto free = std::find_if(rounds.begin(), rounds.end(), [&](const auto& round) {
      return std::none_of(round.begin(), round.end(), shares_rank);
    });
    (free == rounds.end() ? rounds.emplace_back() : *free).push_back(channel);
  }
  return rounds;
}

}  // namespace

Pipe::Pipe(const spec::ModelSpec& model, const spec::Plan& plan, comm::Mesh* mesh,
           device::Device& device, device::Stream& compute)
    : compute_(compute) {
  if (plan.mesh[Axis::pp] == 1) return;
  TRIREME_CHECK(mesh != nullptr, "pp = {} without a mesh", plan.mesh[Axis::pp]);
  rank_ = mesh->coord()[Axis::pp];
  group_ = &mesh->along(Axis::pp, comm::Channel::compute);
  connect(model, plan, *mesh, device);
}

Pipe::~Pipe() { close(comm::End::abort); }

void Pipe::close(comm::End end) noexcept {
  if (std::exchange(is_closed_, true)) return;
  if (end == comm::End::abort) {
    for (Channel& channel : channels_) channel.group->abort("the engine of this rank has failed");
  }
  // A failed stream throws from synchronize(); here it only has to be empty.
  try {
    synchronize();
  } catch (const std::exception& error) {
    base::log_warning("closing pipeline channels after a failure: {}", error.what());
  }
  for (Channel& channel : channels_) channel.group->close(end);
}

void Pipe::connect(const spec::ModelSpec& model, const spec::Plan& plan, comm::Mesh& mesh,
                   device::Device& device) {
  comm::Communicator& world = mesh.world();
  const Axis axis = Axis::pp;
  const std::vector<int> along = comm::members(plan.mesh, world.rank(), std::span(&axis, 1));
  for (const std::vector<PipeChannel>& round : rounds_of(spec::pipe_channels(model, plan))) {
    const auto own = std::find_if(round.begin(), round.end(), [this](const PipeChannel& c) {
      return c.from == rank_ || c.to == rank_;
    });
    const bool is_own = own != round.end();
    comm::Communicator::Options options = world.options();
    // A rank without a channel in this round is alone in its group.
    options.name = is_own ? fmt::format("pp {} {}>{}", spec::name_of(own->kind), own->from, own->to)
                          : "pp none";
    const auto at = [&along](int pp_rank) { return along[static_cast<size_t>(pp_rank)]; };
    const std::vector<int> members =
        is_own ? std::vector{at(own->from), at(own->to)} : std::vector{world.rank()};
    auto group = world.subgroup(members, options);
    if (!is_own) continue;
    group->set_wait(device::Wait::pp);
    channels_.push_back({*own, std::move(group), device.make_side_stream(options.name), {}, {}, 0});
  }
}

void Pipe::set_memory(device::Arena& comm, const spec::PipeBuffers& buffers) {
  for (Channel& channel : channels_) {
    const bool is_between_stages =
        channel.of.kind == PipeKind::activations || channel.of.kind == PipeKind::gradients;
    if (channel.of.from != rank_ || !is_between_stages) continue;
    const auto outgoing = std::count_if(channels_.begin(), channels_.end(), [&](const Channel& c) {
      return c.of.from == rank_ &&
             (c.of.kind == PipeKind::activations || c.of.kind == PipeKind::gradients);
    });
    for (int i = 0; i < buffers.messages / static_cast<int>(outgoing); ++i) {
      channel.buffers.push_back(comm.take(buffers.message));
      channel.sent.emplace_back();
    }
    host_buffer_ = channel.buffers.front();
  }
  for (Channel& channel : channels_) {
    const device::Tensor row = host_buffer_.slice_rows(0, 1);
    if (channel.of.to == rank_) {
      channel.group->recv(*channel.stream, row, 0);
    } else {
      channel.group->start_send(*channel.stream, row, 1)->wait(compute_);
    }
    channel.stream->synchronize();
  }
}

device::Tensor Pipe::outgoing(PipeKind kind, int to) {
  Channel& c = channel(kind, rank_, to);
  std::unique_ptr<comm::Sent>& sent = c.sent[c.next];
  if (sent) {
    const device::WaitSpan span(compute_, device::Wait::pp);
    sent->wait(compute_);
  }
  sent.reset();
  return c.buffers[c.next];
}

void Pipe::send(PipeKind kind, int to) {
  Channel& c = channel(kind, rank_, to);
  c.sent[c.next] = start(c, c.buffers[c.next]);
  c.next = (c.next + 1) % c.buffers.size();
}

device::Event Pipe::receive(PipeKind kind, int from, device::Tensor to, const device::Event& free) {
  Channel& c = channel(kind, from, rank_);
  c.stream->wait(free);
  c.group->recv(*c.stream, to, 0);
  return c.stream->record();
}

std::vector<device::Stream*> Pipe::streams() {
  std::vector<device::Stream*> all;
  for (Channel& channel : channels_) all.push_back(channel.stream.get());
  return all;
}

std::unique_ptr<comm::Sent> Pipe::send_from(PipeKind kind, int to, device::ConstTensor from) {
  return start(channel(kind, rank_, to), from);
}

void Pipe::receive_on(device::Stream& stream, PipeKind kind, int from, device::Tensor to) {
  channel(kind, from, rank_).group->recv(stream, to, 0);
}

std::unique_ptr<comm::Sent> Pipe::start(Channel& c, device::ConstTensor from) {
  c.stream->wait(compute_.record());
  const int64_t before = c.group->traffic().bytes;
  auto sent = c.group->start_send(*c.stream, from, 1);
  int64_t spec::TrafficTable::*kind = &spec::TrafficTable::other;
  if (!counts_as_other_) {
    kind = c.of.kind == PipeKind::activations ? &spec::TrafficTable::pp_activations
           : c.of.kind == PipeKind::gradients ? &spec::TrafficTable::pp_gradients
                                              : &spec::TrafficTable::pp_table;
  }
  traffic_.*kind += c.group->traffic().bytes - before;
  return sent;
}

void Pipe::share(device::Tensor tensor, int owner) {
  if (!has_peers()) return;
  const int64_t before = group_->traffic().bytes;
  group_->broadcast(compute_, tensor, owner);
  traffic_.other += group_->traffic().bytes - before;
}

std::vector<float> Pipe::share(std::span<const float> values, int64_t elements, int owner) {
  std::vector<float> all(values.begin(), values.end());
  if (!has_peers()) return all;
  all.resize(static_cast<size_t>(elements));
  // In pieces that fit into a send buffer, because nothing may be allocated; no step is running.
  synchronize();
  const int64_t room = host_buffer_.bytes() / static_cast<int64_t>(sizeof(float));
  for (int64_t begin = 0; begin < elements; begin += room) {
    const int64_t count = std::min(room, elements - begin);
    const device::Tensor piece = device::view_of(host_buffer_.data, {{count}, base::DType::f32});
    const auto part =
        std::span(all).subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
    if (rank_ == owner) upload_floats(compute_, {piece}, part);
    share(piece, owner);
    if (rank_ == owner) {
      compute_.synchronize();
      continue;
    }
    const std::vector<float> got = download_floats(compute_, {piece});
    std::copy(got.begin(), got.end(), part.begin());
  }
  return all;
}

void Pipe::synchronize() {
  for (Channel& channel : channels_) {
    for (std::unique_ptr<comm::Sent>& sent : channel.sent) {
      if (sent) sent->wait(compute_);
      sent.reset();
    }
    channel.stream->synchronize();
  }
}

Pipe::Channel& Pipe::channel(PipeKind kind, int from, int to) {
  const auto found = std::find_if(channels_.begin(), channels_.end(), [&](const Channel& c) {
    return c.of == PipeChannel{from, to, kind};
  });
  TRIREME_CHECK(found != channels_.end(), "no channel for {} from pp rank {} to {}",
                spec::name_of(kind), from, to);
  return *found;
}

}  // namespace trireme::engine
