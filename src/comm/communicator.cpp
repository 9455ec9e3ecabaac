// SPDX-License-Identifier: Apache-2.0
// The public calls: checks, traffic, flight recorder. Sums are in communicator_sums.cpp.
#include "comm/communicator.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/system/rank_activity.h"
#include "comm/tensors.h"

namespace trireme::comm {
namespace {

// Marks the recorder, in the order of the stream if that can call the host. A GPU's queue cannot do
// so cheaply: there the mark means that the work was queued, unless the back end marks the recorder
// itself (do_begin).
void mark(Stream* stream, FlightRecorder& recorder, void (FlightRecorder::*state)(int64_t),
          int64_t record_id) {
  if (stream == nullptr || stream->host_calls() != Stream::HostCalls::queued) {
    (recorder.*state)(record_id);
  } else {
    stream->call_host([&recorder, state, record_id] { (recorder.*state)(record_id); });
  }
}

std::vector<int> rank_numbers(size_t count) {
  std::vector<int> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

void is_contiguous(const char* op, const char* name, const ConstTensor& tensor) {
  TRIREME_CHECK(tensor && tensor.is_contiguous(),
                "{}: {} {} is not contiguous: its row stride is {} elements", op, name,
                tensor.shape.to_string(), tensor.row_stride);
}

class SentAt final : public Sent {
 public:
  explicit SentAt(device::Event event) : event_(std::move(event)) {}
  void wait(Stream& stream) override { stream.wait(event_); }

 private:
  device::Event event_;
};

}  // namespace

Communicator::Communicator(int rank, std::vector<int> world_ranks, Options options,
                           FlightRecorder& recorder)
    : rank_(rank),
      world_ranks_(std::move(world_ranks)),
      options_(std::move(options)),
      recorder_(recorder),
      own_order_(SumOrder::one_leaf_each(size())),
      all_ranks_(rank_numbers(world_ranks_.size())),
      sent_(world_ranks_.size()),
      received_(world_ranks_.size()) {
  TRIREME_CHECK(rank >= 0 && rank < size(), "rank {} of group '{}' of {}", rank, name(), size());
  if (options_.nodes.empty()) return;
  std::vector<int> nodes;
  for (const int world_rank : world_ranks_) {
    TRIREME_CHECK(world_rank < std::ssize(options_.nodes),
                  "group '{}': the nodes of {} ranks, not of"
                  " rank {}",
                  name(), options_.nodes.size(), world_rank);
    nodes.push_back(options_.nodes[static_cast<size_t>(world_rank)]);
  }
  far_ranks_ =
      size() - static_cast<int>(std::ranges::count(nodes, nodes[static_cast<size_t>(rank)]));
  grid_ = spec::node_grid(nodes);
  if (!grid_) return;
  node_ = grid_->node_of(rank);
  place_ = grid_->place_of(rank);
}

std::chrono::steady_clock::time_point Communicator::deadline_after(double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto allowed = std::chrono::duration<double>(std::min(seconds, 1e9));
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(allowed);
}

FlightRecorder::Entry Communicator::entry_of(const Operation& operation) {
  const ConstTensor& named = operation.in ? operation.in : operation.out;
  const bool has_peer = operation.peer >= 0;
  return {
      .sequence = call_.sequence,
      .group = options_.name,
      .ranks = world_ranks_,
      .op = operation.op,
      .dtype = std::string(base::name_of(named.dtype)),
      .elements = operation.in.elements(),
      .out_elements = operation.out.elements(),
      .bytes = named.bytes(),
      .peer = has_peer ? world_ranks_[static_cast<size_t>(operation.peer)] : -1,
      .deadline_s = options_.deadline_s,
  };
}

device::StreamCall Communicator::stream_call(const Operation& operation) const {
  return {.kind = device::StreamCall::Kind::communication,
          .op = operation.op,
          .of = options_.name,
          .bytes = call_.bytes,
          .ranks = world_ranks_,
          .sequence = call_.sequence,
          .peer = operation.peer >= 0 ? world_ranks_[static_cast<size_t>(operation.peer)] : -1};
}

void Communicator::enter(const Operation& operation) {
  const auto peer = static_cast<size_t>(operation.peer);
  int64_t& counter = !operation.is_message ? next_sequence_
                     : operation.in        ? sent_[peer]
                                           : received_[peer];
  const ConstTensor& named = operation.in ? operation.in : operation.out;
  call_ = {.op = operation.op,
           .sequence = counter++,
           .peer = operation.peer,
           .dtype = named.dtype,
           .bytes = named.bytes(),
           .deadline = deadline_after(options_.deadline_s)};
  call_.record_id = recorder_.scheduled(entry_of(operation));
}

void Communicator::repeat(Stream& stream, const Operation& operation) {
  enter(operation);
  if (do_repeat(stream)) return;
  mark(&stream, recorder_, &FlightRecorder::started, call_.record_id);
  mark(&stream, recorder_, &FlightRecorder::completed, call_.record_id);
}

void Communicator::perform(Stream* stream, const Operation& operation,
                           const std::function<void()>& work) {
  if (size() == 1) {
    work();
    return;
  }
  const bool is_captured = stream != nullptr && stream->is_capturing();
  TRIREME_CHECK(!is_captured || can_be_captured(),
                "group '{}': {} on stream '{}', which is being captured", name(), operation.op,
                stream->name());
  enter(operation);
  base::RankActivity::current().set_op(operation.op, call_.bytes);
  ++traffic_.calls;
  const device::WaitSpan span(stream == nullptr ? nullptr : stream->waits(), wait_);
  const auto marked_work = [&] {
    const bool is_watched = stream != nullptr && do_begin(*stream);
    if (!is_watched) mark(stream, recorder_, &FlightRecorder::started, call_.record_id);
    work();
    if (is_watched) {
      do_end(*stream);
    } else {
      mark(stream, recorder_, &FlightRecorder::completed, call_.record_id);
    }
  };
  try {
    if (options_.debug && !operation.is_message) compare(operation);
    if (stream != nullptr) {
      stream->observed(stream_call(operation), marked_work);
    } else {
      marked_work();
    }
  } catch (...) {
    recorder_.failed(call_.record_id);
    throw;
  }
  if (is_captured) stream->at_launch([this, stream, operation] { repeat(*stream, operation); });
}

// ---- bytes that are moved unchanged

void Communicator::exchange(Stream& stream, Tensor out, const std::byte* in, int64_t stride_bytes,
                            int64_t chunk_bytes, std::span<const int> from) {
  if (chunk_bytes == 0 || from.empty()) return;
  if (size() == 1) {
    stream.copy_bytes(out, bytes_at(in, chunk_bytes));
    return;
  }
  if (in != nullptr) traffic_.bytes += (size() - 1) * chunk_bytes;
  do_exchange(stream, out, in, stride_bytes, chunk_bytes, from);
}

void Communicator::gather(Stream& stream, Tensor out, ConstTensor in) {
  if (in.bytes() == 0) return;
  if (size() == 1) {
    if (out.data != in.data) stream.copy_bytes(out, in);
    return;
  }
  if (grid_ && gathers_directly()) {
    gather_in_levels(stream, as_bytes(out), as_bytes(in));
    return;
  }
  traffic_.bytes += (size() - 1) * in.bytes();
  do_all_gather(stream, as_bytes(out), as_bytes(in));
}

void Communicator::do_transfer(Stream&, std::span<const Outgoing>, std::span<const Incoming>) {
  TRIREME_CHECK(false, "group '{}': this back end does not know nodes", name());
}

void Communicator::all_gather(Stream& stream, Tensor out, ConstTensor in) {
  is_contiguous("all_gather", "out", out);
  is_contiguous("all_gather", "in", in);
  TRIREME_CHECK(out.dtype == in.dtype && out.elements() == size() * in.elements(),
                "all_gather of {} ranks in '{}': {} {} to {} {}", size(), name(),
                base::name_of(in.dtype), in.shape.to_string(), base::name_of(out.dtype),
                out.shape.to_string());
  TRIREME_CHECK(in.data == out.data + rank_ * in.bytes() || are_apart(out, in),
                "all_gather in '{}': in overlaps out and is not this rank's part of it", name());
  perform(&stream, {.op = "all_gather", .in = in, .out = out}, [&] { gather(stream, out, in); });
}

void Communicator::broadcast(Stream& stream, Tensor inout, int root) {
  is_contiguous("broadcast", "tensor", inout);
  TRIREME_CHECK(root >= 0 && root < size(), "broadcast in '{}' of {}: root {}", name(), size(),
                root);
  perform(&stream, {.op = "broadcast", .in = inout, .out = inout, .peer = root}, [&] {
    if (size() == 1 || inout.bytes() == 0) return;
    if (rank_ == root) traffic_.bytes += (size() - 1) * inout.bytes();
    do_broadcast(stream, as_bytes(inout), root);
  });
}

void Communicator::all_to_all(Stream& stream, Tensor out, ConstTensor in) {
  const char* op = "all_to_all";
  check_moved(op, out, in);
  TRIREME_CHECK(in.elements() % size() == 0, "{} of {} ranks in '{}': {} elements", op, size(),
                name(), in.elements());
  perform(&stream, {.op = op, .in = in, .out = out}, [&] {
    const int64_t block_bytes = in.bytes() / size();
    exchange(stream, as_bytes(out), in.data, block_bytes, block_bytes, all_ranks_);
  });
}

void Communicator::shift(Stream& stream, Tensor out, ConstTensor in) {
  check_moved("shift", out, in);
  perform(&stream, {.op = "shift", .in = in, .out = out}, [&] {
    if (in.bytes() == 0) return;
    if (size() == 1) {
      stream.copy_bytes(out, in);
      return;
    }
    traffic_.bytes += in.bytes();
    do_shift(stream, as_bytes(out), as_bytes(in));
  });
}

void Communicator::check_moved(const char* op, ConstTensor out, ConstTensor in) const {
  is_contiguous(op, "out", out);
  is_contiguous(op, "in", in);
  TRIREME_CHECK(out.dtype == in.dtype && out.elements() == in.elements() && are_apart(out, in),
                "{} of {} ranks in '{}': {} {} to {} {}, which must not overlap", op, size(),
                name(), base::name_of(in.dtype), in.shape.to_string(), base::name_of(out.dtype),
                out.shape.to_string());
}

void Communicator::all_to_all(Stream& stream, Tensor out, Tensor counts_in, ConstTensor in,
                              ConstTensor counts_out, int64_t capacity) {
  const char* op = "all_to_all";
  is_contiguous(op, "out", out);
  is_contiguous(op, "in", in);
  TRIREME_CHECK(capacity >= 0 && in.rows() == size() * capacity && out.shape == in.shape &&
                    out.dtype == in.dtype,
                "{} of {} ranks in '{}', capacity {}: {} {} to {} {}", op, size(), name(), capacity,
                base::name_of(in.dtype), in.shape.to_string(), base::name_of(out.dtype),
                out.shape.to_string());
  for (const ConstTensor& counts : {ConstTensor(counts_in), counts_out}) {
    TRIREME_CHECK(counts.shape == base::Shape{size()} && counts.dtype == base::DType::i32,
                  "{}: counts are {} {}", op, base::name_of(counts.dtype),
                  counts.shape.to_string());
  }
  TRIREME_CHECK(are_apart(out, in) && are_apart(counts_in, counts_out),
                "{} in '{}': in overlaps out", op, name());
  perform(&stream, {.op = op, .in = in, .out = out}, [&] {
    const int64_t count_bytes = base::size_of(base::DType::i32), block_bytes = in.bytes() / size();
    exchange(stream, as_bytes(counts_in), counts_out.data, count_bytes, count_bytes, all_ranks_);
    exchange(stream, as_bytes(out), in.data, block_bytes, block_bytes, all_ranks_);
  });
}

void Communicator::check_send(ConstTensor in, int to) const {
  is_contiguous("send", "tensor", in);
  TRIREME_CHECK(to >= 0 && to < size() && to != rank_, "send from rank {} to rank {} of {} in '{}'",
                rank_, to, size(), name());
}

void Communicator::send(Stream& stream, ConstTensor in, int to) {
  check_send(in, to);
  perform(&stream, {.op = "send", .in = in, .peer = to, .is_message = true}, [&] {
    if (in.bytes() == 0) return;
    traffic_.bytes += in.bytes();
    do_send(stream, as_bytes(in), to);
  });
}

std::unique_ptr<Sent> Communicator::start_send(Stream& stream, ConstTensor in, int to) {
  check_send(in, to);
  std::unique_ptr<Sent> sent = sent_at({});
  perform(&stream, {.op = "send", .in = in, .peer = to, .is_message = true}, [&] {
    if (in.bytes() == 0) return;
    traffic_.bytes += in.bytes();
    sent = do_start_send(stream, as_bytes(in), to);
  });
  return sent;
}

std::unique_ptr<Sent> Communicator::do_start_send(Stream& stream, ConstTensor in, int to) {
  do_send(stream, in, to);
  return sent_at(stream.record());
}

std::unique_ptr<Sent> Communicator::sent_at(device::Event event) {
  return std::make_unique<SentAt>(std::move(event));
}

void Communicator::recv(Stream& stream, Tensor out, int from) {
  is_contiguous("recv", "tensor", out);
  TRIREME_CHECK(from >= 0 && from < size() && from != rank_,
                "recv on rank {} from rank {} of {} in '{}'", rank_, from, size(), name());
  perform(&stream, {.op = "recv", .out = out, .peer = from, .is_message = true}, [&] {
    if (out.bytes() > 0) do_recv(stream, as_bytes(out), from);
  });
}

void Communicator::barrier() {
  perform(nullptr, {.op = "barrier"}, [&] {
    if (size() > 1) do_barrier();
  });
}

std::unique_ptr<Communicator> Communicator::split(int color, int key, Options options) {
  options.debug = options.debug || options_.debug;
  std::unique_ptr<Communicator> part;
  perform(nullptr, {.op = "split"}, [&] { part = do_split(color, key, std::move(options)); });
  return part;
}

std::unique_ptr<Communicator> Communicator::subgroup(std::span<const int> members,
                                                     Options options) {
  TRIREME_CHECK(std::ranges::count(members, rank_) == 1,
                "group '{}': rank {} is {} times in its subgroup '{}' of {}", name(), rank_,
                std::ranges::count(members, rank_), options.name, members.size());
  options.debug = options.debug || options_.debug;
  std::unique_ptr<Communicator> part;
  perform(nullptr, {.op = "split"}, [&] { part = do_subgroup(members, std::move(options)); });
  return part;
}

std::unique_ptr<Communicator> Communicator::do_subgroup(std::span<const int> members,
                                                        Options options) {
  const auto place = std::ranges::find(members, rank_) - members.begin();
  auto part =
      do_split(*std::ranges::min_element(members), static_cast<int>(place), std::move(options));
  TRIREME_CHECK(part->size() == std::ssize(members) && part->rank() == place,
                "group '{}': rank {} expects to be rank {} of {} in subgroup '{}', and is rank {} "
                "of {}",
                name(), rank_, place, members.size(), part->name(), part->rank(), part->size());
  return part;
}

}  // namespace trireme::comm
