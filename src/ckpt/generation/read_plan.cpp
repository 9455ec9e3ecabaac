// SPDX-License-Identifier: Apache-2.0
// Generation::read(): the copies of spec::reshard(), sorted by the chunk they read from. A copy is
// a list of runs that are contiguous in the file and in memory. Runs ascend in the file, so the
// runs of one chunk are found by bisection and never listed.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "ckpt/disk/aligned.h"
#include "ckpt/generation/generation.h"

namespace trireme::ckpt {
namespace {

// A copy in bytes, between one file and one request.
class ByteCopy {
 public:
  ByteCopy(spec::Copy copy, int64_t element_bytes, std::byte* target)
      : copy_(std::move(copy)), element_bytes_(element_bytes), target_(target) {
    for (size_t dim = 0; dim + 1 < copy_.count.size(); ++dim) runs_ *= copy_.count[dim];
    run_bytes_ = copy_.count.back() * element_bytes_;
  }

  // The range of the file from the first run to the last.
  int64_t begin() const { return place(0).source; }
  int64_t end() const { return place(runs_ - 1).source + run_bytes_; }
  // Returns the first run that ends after this byte of the file, or runs() if there is none.
  int64_t first_run_after(int64_t byte) const {
    int64_t low = 0, high = runs_;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      (place(middle).source + run_bytes_ > byte ? high : low) =
          place(middle).source + run_bytes_ > byte ? middle : middle + 1;
    }
    return low;
  }
  bool meets(int64_t chunk_begin, int64_t chunk_end) const {
    const int64_t run = first_run_after(chunk_begin);
    return run < runs_ && place(run).source < chunk_end;
  }
  // Copies the runs that lie in `chunk`, which begins at `chunk_begin` of the file.
  void take(std::span<const std::byte> chunk, int64_t chunk_begin) const {
    const int64_t chunk_end = chunk_begin + std::ssize(chunk);
    for (int64_t run = first_run_after(chunk_begin); run < runs_; ++run) {
      const Place at = place(run);
      if (at.source >= chunk_end) break;
      const int64_t from = std::max(at.source, chunk_begin);
      const int64_t until = std::min(at.source + run_bytes_, chunk_end);
      std::memcpy(target_ + at.target + (from - at.source), chunk.data() + (from - chunk_begin),
                  static_cast<size_t>(until - from));
    }
  }

 private:
  struct Place {
    int64_t source, target;  // bytes
  };
  Place place(int64_t run) const {
    int64_t source = copy_.source_offset, target = copy_.target_offset;
    for (size_t dim = copy_.count.size() - 1; dim-- > 0;) {
      const int64_t index = run % copy_.count[dim];
      run /= copy_.count[dim];
      source += index * copy_.source_stride[dim];
      target += index * copy_.target_stride[dim];
    }
    return {source * element_bytes_, target * element_bytes_};
  }

  spec::Copy copy_;
  int64_t element_bytes_;
  std::byte* target_;
  int64_t runs_ = 1, run_bytes_ = 0;
};

void expect_within(const ReadRequest& request) {
  for (const spec::Piece& piece : request.wanted) {
    const int64_t end =
        (piece.local + elements_of({piece.lo, piece.hi, 0})) * base::size_of(request.tensor.dtype);
    TRIREME_CHECK(piece.local >= 0 && end <= std::ssize(request.bytes),
                  "{}: a piece ends at byte {} of {}", request.tensor.name, end,
                  request.bytes.size());
  }
}

}  // namespace

// All copies of a read, and the copies that each chunk feeds.
class Generation::ReadPlan {
 public:
  struct Use {
    int file;
    int64_t chunk;
    size_t copy;
    auto operator<=>(const Use&) const = default;
  };

  ReadPlan(const Generation& generation, std::span<const ReadRequest> requests) {
    for (const ReadRequest& request : requests) add(generation, request);
    std::ranges::sort(uses_);
    for (size_t use = 0; use < uses_.size(); ++use) {
      if (use == 0 || uses_[use].file != uses_[use - 1].file ||
          uses_[use].chunk != uses_[use - 1].chunk) {
        chunks_.push_back(use);
      }
    }
    chunks_.push_back(uses_.size());
  }

  int64_t chunks() const { return std::ssize(chunks_) - 1; }
  std::span<const Use> uses(int64_t chunk) const {
    const size_t first = chunks_[static_cast<size_t>(chunk)];
    return std::span(uses_).subspan(first, chunks_[static_cast<size_t>(chunk) + 1] - first);
  }
  const ByteCopy& copy(const Use& use) const { return copies_[use.copy]; }

 private:
  void add(const Generation& generation, const ReadRequest& request) {
    const Saved& saved = generation.find(request);
    expect_within(request);
    std::vector<spec::Copy> copies;
    try {
      copies = spec::reshard(saved.pieces, request.wanted);
    } catch (const base::ConfigError& error) {
      throw base::IoError(fmt::format("{}: {}: {}", generation.folder().string(),
                                      request.tensor.name, error.what()));
    }
    for (spec::Copy& copy : copies) {
      const int file = saved.files[static_cast<size_t>(copy.source)];
      copies_.emplace_back(std::move(copy), base::size_of(request.tensor.dtype),
                           request.bytes.data());
      const ByteCopy& added = copies_.back();
      for (int64_t chunk = added.begin() / chunk_bytes; chunk * chunk_bytes < added.end();
           ++chunk) {
        if (added.meets(chunk * chunk_bytes, (chunk + 1) * chunk_bytes)) {
          uses_.push_back({file, chunk, copies_.size() - 1});
        }
      }
    }
  }

  std::vector<ByteCopy> copies_;
  std::vector<Use> uses_;       // by file and chunk
  std::vector<size_t> chunks_;  // where each chunk's uses begin, and the end
};

const Generation::Saved& Generation::find(const ReadRequest& request) const {
  const TensorInfo& wanted = request.tensor;
  const auto found = saved_.find(wanted.name);
  if (found == saved_.end()) {
    throw base::IoError(fmt::format("{}: there is no tensor {} among {}", folder_.string(),
                                    wanted.name, saved_.size()));
  }
  const TensorInfo& info = found->second.info;
  if (info != wanted) {
    throw base::IoError(fmt::format("{}: {} was saved as {} [{}]; the model has {} [{}]",
                                    folder_.string(), wanted.name, base::name_of(info.dtype),
                                    fmt::join(info.shape, ", "), base::name_of(wanted.dtype),
                                    fmt::join(wanted.shape, ", ")));
  }
  for (const spec::Piece& piece : request.wanted) {
    TRIREME_CHECK(piece.lo.size() == info.shape.size(), "{}: a piece of {} dimensions", wanted.name,
                  piece.lo.size());
  }
  return found->second;
}

void Generation::read(std::span<const ReadRequest> requests, const IoOptions& options) const {
  const ReadPlan plan(*this, requests);
  // Each worker keeps one file open, because chunks are sorted by file.
  struct Worker {
    AlignedBytes buffer;
    int file = -1;
    std::unique_ptr<DiskFile> open;
  };
  std::vector<Worker> workers(static_cast<size_t>(options.queue_depth));
  for_each_in_flight(options.queue_depth, plan.chunks(), [&](int number, int64_t index) {
    Worker& worker = workers[static_cast<size_t>(number)];
    const auto uses = plan.uses(index);
    const auto [file, chunk, first] = uses.front();
    if (worker.file != file) {
      worker.open = disk_->open(files_[static_cast<size_t>(file)].path);
      worker.file = file;
    }
    const auto bytes = read_chunk(*worker.open, file, chunk, worker.buffer.of(chunk_bytes));
    for (const ReadPlan::Use& use : uses) plan.copy(use).take(bytes, chunk * chunk_bytes);
  });
}

}  // namespace trireme::ckpt
