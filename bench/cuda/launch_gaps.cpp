// SPDX-License-Identifier: Apache-2.0
// Measures for how much of its time a program leaves the GPU idle. This is a library that the CUDA
// driver loads into any program. It traces kernels, copies and fills with CUPTI and prints one line
// of JSON on stderr when the program ends. Only the middle half of the traced time counts: start
// and end are not training. In a gap none of the program's kernels, copies and fills runs; if
// processes share a GPU, gaps include the time slices of the others.
//
//   CUDA_INJECTION64_PATH=$PWD/build/gpu/bench/liblaunch_gaps.so trireme train ...
#include <cupti.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <vector>

namespace {

struct Span {
  uint64_t begin, end;
};

// Left alone at exit: CUPTI's threads may still deliver records.
struct Trace {
  std::mutex mutex;
  std::vector<Span> spans;
  uint64_t lost = 0;
};
Trace& trace() {
  static Trace* const all = new Trace;
  return *all;
}

void check(CUptiResult status, const char* what) {
  if (status == CUPTI_SUCCESS) return;
  const char* text = "unknown";
  cuptiGetResultString(status, &text);
  std::fprintf(stderr, "launch_gaps: %s: %s\n", what, text);
}

constexpr size_t buffer_bytes = size_t{4} << 20, record_alignment = 8;

void CUPTIAPI give_buffer(uint8_t** buffer, size_t* bytes, size_t* max_records) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(record_alignment, buffer_bytes));
  *bytes = *buffer == nullptr ? 0 : buffer_bytes;
  *max_records = 0;  // as many as fit
}

template <typename Record>
Span span_of(const CUpti_Activity* record) {
  const auto* r = reinterpret_cast<const Record*>(record);
  return {r->start, r->end};
}

void CUPTIAPI take_buffer(CUcontext context, uint32_t stream, uint8_t* buffer, size_t /*bytes*/,
                          size_t valid_bytes) {
  Trace& all = trace();
  const std::lock_guard lock(all.mutex);
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid_bytes, &record) == CUPTI_SUCCESS) {
    switch (record->kind) {
      case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
        all.spans.push_back(span_of<CUpti_ActivityKernel10>(record));
        break;
      case CUPTI_ACTIVITY_KIND_MEMCPY:
        all.spans.push_back(span_of<CUpti_ActivityMemcpy6>(record));
        break;
      case CUPTI_ACTIVITY_KIND_MEMSET:
        all.spans.push_back(span_of<CUpti_ActivityMemset4>(record));
        break;
      default:
        break;
    }
  }
  size_t lost = 0;
  if (cuptiActivityGetNumDroppedRecords(context, stream, &lost) == CUPTI_SUCCESS) all.lost += lost;
  std::free(buffer);
}

void report() {
  check(cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "cuptiActivityFlushAll");
  Trace& all = trace();
  const std::lock_guard lock(all.mutex);
  std::vector<Span>& spans = all.spans;
  // A kernel whose times CUPTI could not read has zeros.
  std::erase_if(spans, [](const Span& s) { return s.begin == 0 || s.end < s.begin; });
  std::sort(spans.begin(), spans.end(),
            [](const Span& a, const Span& b) { return a.begin < b.begin; });
  if (spans.size() < 4) return;
  const uint64_t whole = spans.back().end - spans.front().begin;
  const uint64_t from = spans.front().begin + whole / 4, to = from + whole / 2;
  uint64_t covered = from, busy = 0, count = 0;
  std::vector<uint64_t> gaps;
  for (const Span& s : spans) {
    if (s.begin < from || s.begin >= to) continue;
    ++count;
    if (s.begin > covered) gaps.push_back(s.begin - covered);
    busy += s.end - std::min(s.end, std::max(s.begin, covered));
    covered = std::max(covered, s.end);
  }
  if (covered <= from || gaps.empty()) return;
  uint64_t idle = 0;
  for (const uint64_t gap : gaps) idle += gap;
  std::sort(gaps.begin(), gaps.end());
  const auto microseconds = [&](double share) {
    return static_cast<double>(
               gaps[static_cast<size_t>(share * static_cast<double>(gaps.size() - 1))]) /
           1e3;
  };
  std::fprintf(stderr,
               "{\"process\":%d,\"seconds\":%.6f,\"launches\":%llu,\"busy_share\":%.4f,"
               "\"idle_seconds\":%.6f,\"gaps\":%zu,\"median_gap_us\":%.2f,\"p90_gap_us\":%.2f,"
               "\"lost_records\":%llu}\n",
               static_cast<int>(getpid()), static_cast<double>(covered - from) / 1e9,
               static_cast<unsigned long long>(count),
               static_cast<double>(busy) / static_cast<double>(covered - from),
               static_cast<double>(idle) / 1e9, gaps.size(), microseconds(0.5), microseconds(0.9),
               static_cast<unsigned long long>(all.lost));
}

}  // namespace

// The driver calls this by name when the program first uses CUDA.
extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  check(cuptiActivityRegisterCallbacks(give_buffer, take_buffer), "cuptiActivityRegisterCallbacks");
  for (const CUpti_ActivityKind kind : {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                        CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET})
    check(cuptiActivityEnable(kind), "cuptiActivityEnable");
  std::atexit(report);
  return 1;
}
