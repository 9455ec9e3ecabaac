// SPDX-License-Identifier: Apache-2.0
#include "workload.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "ckpt/generation/folder.h"
#include "ckpt/generation/generation.h"
#include "turns.h"

namespace trireme::crashlab {
namespace {

using ckpt::Disk;
using ckpt::Draft;

void remove_without_renaming(Disk& disk, int64_t step) {
  ckpt::remove_all(disk, Disk::Path(root) / ckpt::generation_name(step));
}

class Run {
 public:
  Run(Disk& disk, const Workload& workload, const std::function<size_t()>& operations)
      : disk_(disk), workload_(workload), operations_(operations) {}

  const Promises& promises() const { return promises_; }

  void save(int64_t step) {
    std::optional<Draft> draft;
    try {
      draft = begin(step);
      write_and_commit(*draft);
    } catch (const base::IoError&) {
      if (draft) ckpt::abandon(disk_, *draft);
    }
  }

  // A process that dies while it writes.
  void die_while_saving(int64_t step) {
    try {
      Draft draft = begin(step);
      ++draft.step;  // another history, other bytes
      ckpt::write_small(disk_, draft, 0, workload_.small);
    } catch (const base::IoError&) {
      // The disk fails on purpose.
    }
  }

  void clean_up() {
    if (workload_.fault == Fault::stale_draft_reused) return;
    try {
      ckpt::remove_leftovers(disk_, root);
    } catch (const base::IoError&) {
      // The disk fails on purpose.
    }
  }

  void remove_all_but_the_newest() {
    try {
      const auto steps = ckpt::committed_steps(disk_, root);
      for (size_t i = 1; i < steps.size(); ++i) promises_.removing(steps[i], operations_());
      if (workload_.fault == Fault::old_files_removed_before_their_name) {
        for (size_t i = 1; i < steps.size(); ++i) remove_without_renaming(disk_, steps[i]);
        return;
      }
      ckpt::remove_old(disk_, root, {.latest = 1});
    } catch (const base::IoError&) {
      // The disk fails on purpose.
    }
  }

 private:
  Draft begin(int64_t step) {
    if (workload_.fault == Fault::stale_draft_reused && disk_.exists(root)) {
      for (const ckpt::DiskEntry& entry : disk_.list(root)) {
        const std::string name = ckpt::generation_name(step);
        if (!entry.name.starts_with(name + ckpt::draft_mark)) continue;
        return {step, {}, root, Disk::Path(root) / entry.name, Disk::Path(root) / name};
      }
    }
    return ckpt::begin_generation(disk_, root, step);
  }

  void write_and_commit(const Draft& draft) {
    const Fault fault = workload_.fault;
    ckpt::Manifest manifest = ckpt::manifest_of_small(draft.step, workload_.small);
    std::vector<int64_t> too_early;  // promised until the new one is durable
    if (fault == Fault::old_removed_before_new_is_durable) {
      too_early = ckpt::committed_steps(disk_, root);
      ckpt::set_aside_newer(disk_, root, -1);
    }
    const int ranks = workload_.small.ranks - (fault == Fault::rank_not_waited_for ? 1 : 0);
    manifest.files.resize(static_cast<size_t>(ranks));
    std::vector<std::function<void(Disk&)>> tasks;
    for (int rank = 0; rank < ranks; ++rank) {
      tasks.emplace_back([&, rank](Disk& disk) {
        manifest.files[static_cast<size_t>(rank)] = write(disk, draft, rank);
      });
    }
    Turns(workload_.order + static_cast<uint64_t>(draft.step)).run(disk_, tasks);
    if (fault == Fault::index_hash_of_another_file) {
      manifest.files.front().index_hash = manifest.files.back().index_hash;
    }
    if (fault == Fault::committed_too_early) promises_.committed(draft.step, operations_());
    ckpt::commit(disk_, draft, manifest);
    promises_.committed(draft.step, operations_());
    for (const int64_t step : too_early) promises_.removing(step, operations_());
  }

  ckpt::FileInfo write(Disk& disk, const Draft& draft, int rank) {
    const Fault fault = workload_.fault;
    if (fault == Fault::stale_draft_reused && disk.exists(draft.folder / ckpt::index_name(rank))) {
      return stale_file(draft, rank);
    }
    const ckpt::FileInfo file = ckpt::write_small(disk, draft, rank, workload_.small);
    if (fault == Fault::leftovers_removed_while_writing) ckpt::remove_leftovers(disk, root);
    return file;
  }

  // Treats the file that a dead process left as this run's file.
  ckpt::FileInfo stale_file(const Draft& draft, int rank) {
    const std::string text =
        ckpt::read_text(disk_, draft.folder / ckpt::index_name(rank), ckpt::max_index_bytes);
    return {rank, disk_.open(draft.folder / ckpt::data_name(rank))->size(), std::ssize(text),
            ckpt::hash_of(text)};
  }

  Disk& disk_;
  const Workload& workload_;
  const std::function<size_t()>& operations_;
  Promises promises_;
};

Disk::Path newest_draft(Disk& disk) {
  Disk::Path found;
  if (!disk.exists(root)) return found;
  for (const ckpt::DiskEntry& entry : disk.list(root)) {
    if (entry.name.find(ckpt::draft_mark) != std::string::npos) {
      found = Disk::Path(root) / entry.name;
    }
  }
  return found;
}

// Takes the bytes of boxes without checking the hash of the manifest or of chunks.
std::optional<Loaded> load_unchecked(Disk& disk, const Workload& workload,
                                     const Disk::Path& folder) {
  const auto manifest_path = folder / ckpt::manifest_name;
  std::string text = ckpt::read_text(disk, manifest_path, ckpt::max_manifest_bytes);
  if (workload.fault == Fault::manifest_hash_not_checked) {
    text = ckpt::sealed(text.substr(0, text.rfind("xxh3-128")));
  }
  const ckpt::Manifest manifest = ckpt::parse_manifest(text, manifest_path.string());
  Loaded loaded{manifest.step, {{}, {}, {}}, manifest.state};
  for (size_t i = 0; i < 3; ++i) {
    loaded.content[i].resize(
        static_cast<size_t>(ckpt::bytes_of(workload.small.tensor(static_cast<int>(i)))) /
        sizeof(float));
  }
  for (const ckpt::FileInfo& file : manifest.files) {
    const auto index_path = folder / ckpt::index_name(file.rank);
    const ckpt::Index index =
        ckpt::parse_index(ckpt::read_text(disk, index_path, ckpt::max_index_bytes), "index");
    const auto data = disk.open(folder / ckpt::data_name(file.rank));
    if (workload.fault == Fault::manifest_hash_not_checked) {
      // Files of this workload have one chunk.
      const auto path = folder / ckpt::data_name(file.rank);
      const std::string bytes = ckpt::read_text(disk, path, ckpt::chunk_bytes);
      if (ckpt::hash_of(bytes) != index.chunks.at(0)) throw base::IoError("a chunk is damaged");
    }
    for (const ckpt::SavedTensor& saved : index.tensors) {
      const size_t number = saved.tensor.name == "counts" ? 2 : saved.tensor.name == "m/a" ? 1 : 0;
      for (const ckpt::SavedBox& box : saved.boxes) {
        const int64_t first = number == 2 ? box.lo[0] : box.lo[0] * 3;
        data->read_at(box.offset,
                      std::as_writable_bytes(std::span(loaded.content[number])
                                                 .subspan(static_cast<size_t>(first),
                                                          static_cast<size_t>(elements_of(box)))));
      }
    }
  }
  return loaded;
}

std::string what_is_wrong(const Loaded& loaded, const Workload& workload) {
  if (loaded.content != ckpt::content_of_small(loaded.step, workload.small)) {
    return fmt::format("step {}: wrong bytes were loaded", loaded.step);
  }
  if (loaded.state != ckpt::manifest_of_small(loaded.step, workload.small).state) {
    return fmt::format("step {}: a wrong state was loaded", loaded.step);
  }
  return "";
}

}  // namespace

std::vector<int64_t> Promises::at(size_t operations) const {
  std::set<int64_t> steps;
  for (const Event& event : events_) {
    if (event.operations > operations) continue;
    if (event.is_committed) {
      steps.insert(event.step);
    } else {
      steps.erase(event.step);
    }
  }
  return {steps.begin(), steps.end()};
}

Promises run(Disk& disk, const Workload& workload, const std::function<size_t()>& operations) {
  Run run(disk, workload, operations);
  run.save(10);
  run.save(20);
  run.remove_all_but_the_newest();
  if (workload.is_short) return run.promises();
  run.die_while_saving(30);
  run.clean_up();
  run.save(30);
  run.save(40);
  run.remove_all_but_the_newest();
  return run.promises();
}

std::optional<Loaded> load(Disk& disk, const Workload& workload) {
  const Fault fault = workload.fault;
  if (fault == Fault::drafts_taken_for_generations) {
    if (const auto draft = newest_draft(disk); !draft.empty()) {
      return load_unchecked(disk, workload, draft);
    }
  }
  if (fault == Fault::chunk_hashes_not_checked || fault == Fault::manifest_hash_not_checked) {
    for (const int64_t step : ckpt::committed_steps(disk, root)) {
      try {
        return load_unchecked(disk, workload, Disk::Path(root) / ckpt::generation_name(step));
      } catch (const base::Error&) {
        continue;  // damaged: an older one
      }
    }
    return {};
  }
  const auto found = ckpt::newest_good(disk, root, ckpt::Verify::all, {.queue_depth = 1});
  if (!found.generation) return {};
  return Loaded{found.generation->manifest().step,
                ckpt::loaded_small(*found.generation, workload.small),
                found.generation->manifest().state};
}

std::string broken_promise(Disk& disk, const std::vector<int64_t>& promised,
                           const Workload& workload) {
  try {
    // Every entry with the name of a checkpoint is complete.
    std::set<int64_t> visible;
    for (const int64_t step : ckpt::committed_steps(disk, root)) {
      visible.insert(step);
      const auto generation = ckpt::Generation::open(
          disk, Disk::Path(root) / ckpt::generation_name(step), {.queue_depth = 1});
      const auto damage = generation.damage({.queue_depth = 1});
      if (!damage.empty()) return damage.front();
    }
    for (const int64_t step : promised) {
      if (!visible.contains(step)) return fmt::format("step {} was committed and is lost", step);
    }
    const std::optional<Loaded> loaded = load(disk, workload);
    if (!loaded) return promised.empty() ? "" : "nothing was loaded";
    if (!promised.empty() && loaded->step < promised.back()) {
      return fmt::format("step {} was loaded, {} was committed", loaded->step, promised.back());
    }
    return what_is_wrong(*loaded, workload);
  } catch (const base::Error& error) {
    return error.what();
  }
}

}  // namespace trireme::crashlab
