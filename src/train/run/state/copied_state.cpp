// SPDX-License-Identifier: Apache-2.0
#include "train/run/state/copied_state.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <type_traits>

#include "base/check.h"
#include "base/shape.h"
#include "base/split_float.h"
#include "comm/mesh.h"
#include "train/numerics/numerics_watch.h"
#include "train/run/state/engine_state.h"

namespace trireme::train {
namespace {

constexpr int64_t grain = 64;  // bytes, at which ranges begin

// What a copy's note contains.
struct Note {
  KeptState::Point point;
  kernels::StepState step;
  BlockSet bf16_blocks;
};
static_assert(std::is_trivially_copyable_v<Note> && sizeof(Note) <= sizeof(ckpt::CopyLabel::note));

int64_t elements_of(const engine::Engine::StateRange& range) {
  return range.range.end - range.range.begin;
}

// The bytes between a range and the next one, or the table.
struct Padding {
  int64_t begin, end;
};
Padding padding_after(const CopyLayout& layout, size_t range) {
  const int64_t bytes = elements_of(layout.ranges[range]) * static_cast<int64_t>(sizeof(float));
  const bool is_last = range + 1 == layout.ranges.size();
  return {layout.offsets[range] + bytes, is_last ? layout.table : layout.offsets[range + 1]};
}

// Every range of a plan, for the digest.
std::string text_of(const std::vector<ckpt::TensorPieces>& parts, int64_t offset) {
  std::string text = fmt::format("{}:", offset);
  for (const ckpt::TensorPieces& part : parts) {
    text += fmt::format("{}[{}]", part.tensor.name, fmt::join(part.tensor.shape, ","));
    for (const spec::Piece& piece : part.pieces) {
      text += fmt::format("({} {} {})", fmt::join(piece.lo, ","), fmt::join(piece.hi, ","),
                          piece.local);
    }
  }
  return text + "\n";
}

}  // namespace

CopyLayout copy_layout(const spec::ModelSpec& model, const spec::Plan& plan, int rank) {
  CopyLayout layout{.ranges = state_ranges(model, plan, rank)};
  const spec::Coord coord = comm::coord_of(plan.mesh, rank);
  ckpt::Hasher digest;
  for (const engine::Engine::StateRange& range : layout.ranges) {
    const std::string text = text_of(pieces_of(range, model, plan, coord), layout.bytes);
    digest.add(std::as_bytes(std::span(text)));
    layout.offsets.push_back(layout.bytes);
    layout.bytes += base::round_up(elements_of(range) * static_cast<int64_t>(sizeof(float)), grain);
  }
  layout.table = layout.bytes;
  layout.bytes = std::max(grain, layout.bytes + std::ssize(layout.ranges));
  layout.digest = digest.hash();
  return layout;
}

ckpt::CopyShape shape_of(const CopyLayout& layout, int rank, int buffers) {
  return {.layout = layout.digest, .bytes = layout.bytes, .rank = rank, .buffers = buffers};
}

int64_t copies_bytes(const CopyLayout& layout, int rank, int buffers) {
  return shape_of(layout, rank, buffers).memory_bytes();
}

std::vector<StagedCopy> copies_into(const CopyLayout& layout, engine::Engine& engine) {
  const std::vector<engine::Engine::StateRange> state = engine.state();
  TRIREME_CHECK(state.size() == layout.ranges.size(), "{} ranges, the layout has {}", state.size(),
                layout.ranges.size());
  std::vector<StagedCopy> copies;
  for (size_t i = 0; i < state.size(); ++i) {
    const engine::Engine::StateRange& planned = layout.ranges[i];
    TRIREME_CHECK(state[i].tensor.name == planned.tensor.name && state[i].layer == planned.layer &&
                      state[i].range == planned.range,
                  "range {} of the state is {} of layer {}, the layout has {} of layer {}", i,
                  state[i].tensor.name, state[i].layer, planned.tensor.name, planned.layer);
    copies.push_back(
        {.from = state[i].floats, .to = layout.offsets[i], .is_own = state[i].tensor.is_own()});
    TRIREME_CHECK(copies.back().bytes() == elements_of(planned) * int64_t{sizeof(float)},
                  "{} has {} bytes", planned.tensor.name, copies.back().bytes());
  }
  return copies;
}

void write_rest(const CopyLayout& layout, engine::Engine& engine, std::span<std::byte> block) {
  for (size_t i = 0; i < layout.ranges.size(); ++i) {
    const Padding padding = padding_after(layout, i);
    std::memset(block.data() + padding.begin, 0, static_cast<size_t>(padding.end - padding.begin));
  }
  std::memset(block.data() + layout.table, 0, static_cast<size_t>(layout.bytes - layout.table));
  const std::vector<engine::Engine::StateRange> state = engine.state();
  for (size_t i = 0; i < state.size(); ++i) {
    const bool is_split = static_cast<bool>(state[i].floats.low);
    block[static_cast<size_t>(layout.table) + i] = is_split ? std::byte{1} : std::byte{0};
  }
}

base::ContentSum sum_of_rest(const CopyLayout& layout, std::span<const std::byte> block) {
  base::ContentSum sum;
  const auto add = [&](int64_t begin, int64_t end) {
    sum.add(block.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)), begin);
  };
  for (size_t i = 0; i < layout.ranges.size(); ++i) {
    const Padding padding = padding_after(layout, i);
    add(base::round_up(padding.begin, base::content_block_bytes), padding.end);
  }
  add(layout.table, layout.bytes);
  return sum;
}

void write_note(ckpt::CopyLabel& label, const KeptState::Point& point,
                std::span<const int> bf16_blocks, const kernels::StepState& step) {
  label.step = point.step;
  Note note{.point = point, .step = step, .bf16_blocks = set_of(bf16_blocks)};
  note.step.overflow = 0;  // as take_state()
  std::memcpy(label.note.data(), &note, sizeof note);
}

KeptState kept_from(const ckpt::CopyLabel& label, std::span<const std::byte> block,
                    const CopyLayout& layout, const CopiedRank& of) {
  TRIREME_CHECK(std::ssize(block) == layout.bytes, "{} bytes, the layout has {}", block.size(),
                layout.bytes);
  Note note;
  std::memcpy(&note, label.note.data(), sizeof note);
  KeptState kept{.point = note.point,
                 .bf16_blocks = list_of(note.bf16_blocks),
                 .state = {.parts = {}, .step = note.step},
                 .source = StateSource::memory_copy};
  const spec::Coord coord = comm::coord_of(of.plan.mesh, of.rank);
  for (size_t i = 0; i < layout.ranges.size(); ++i) {
    const engine::Engine::StateRange& range = layout.ranges[i];
    const auto elements = static_cast<size_t>(elements_of(range));
    EngineState::Part part{pieces_of(range, of.model, of.plan, coord),
                           std::vector<float>(elements)};
    const std::byte* const from = block.data() + layout.offsets[i];
    if (block[static_cast<size_t>(layout.table) + i] == std::byte{0}) {
      std::memcpy(part.values.data(), from, elements * sizeof(float));
    } else {
      const auto* const split = reinterpret_cast<const uint16_t*>(from);
      base::join_floats(split, split + elements, static_cast<int64_t>(elements),
                        part.values.data());
    }
    kept.state.parts.push_back(std::move(part));
  }
  return kept;
}

}  // namespace trireme::train
