// SPDX-License-Identifier: Apache-2.0
// The functions of NCCL that Trireme calls, forwarded to the loaded library.
#include "comm/nccl/nccl_library.h"

#include <fmt/format.h>
#include <nccl.h>

#include "device/cuda/gpu_libraries.h"

namespace trireme::comm {

const base::SharedLibrary& nccl_shared_library() {
  static const base::SharedLibrary library({.name = fmt::format("NCCL {}", NCCL_MAJOR),
                                            .file = fmt::format("libnccl.so.{}", NCCL_MAJOR),
                                            .folders = device::cuda_folders()});
  return library;
}

namespace {

template <typename Function>
Function* nccl_function(const char* name) {
  return nccl_shared_library().function<Function>(name);
}

}  // namespace
}  // namespace trireme::comm

using trireme::comm::nccl_function;

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  static const auto real = nccl_function<decltype(ncclGetVersion)>("ncclGetVersion");
  return real(version);
}

const char* ncclGetErrorString(ncclResult_t result) {
  static const auto real = nccl_function<decltype(ncclGetErrorString)>("ncclGetErrorString");
  return real(result);
}

const char* ncclGetLastError(ncclComm_t comm) {
  static const auto real = nccl_function<decltype(ncclGetLastError)>("ncclGetLastError");
  return real(comm);
}

// ---- groups of ranks

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static const auto real = nccl_function<decltype(ncclGetUniqueId)>("ncclGetUniqueId");
  return real(id);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  static const auto real =
      nccl_function<decltype(ncclCommInitRankConfig)>("ncclCommInitRankConfig");
  return real(comm, ranks, id, rank, config);
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* made,
                           ncclConfig_t* config) {
  static const auto real = nccl_function<decltype(ncclCommSplit)>("ncclCommSplit");
  return real(comm, color, key, made, config);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  static const auto real = nccl_function<decltype(ncclCommGetAsyncError)>("ncclCommGetAsyncError");
  return real(comm, error);
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  static const auto real = nccl_function<decltype(ncclCommFinalize)>("ncclCommFinalize");
  return real(comm);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  static const auto real = nccl_function<decltype(ncclCommDestroy)>("ncclCommDestroy");
  return real(comm);
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  static const auto real = nccl_function<decltype(ncclCommAbort)>("ncclCommAbort");
  return real(comm);
}

// ---- collectives and messages

ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  static const auto real = nccl_function<decltype(ncclAllReduce)>("ncclAllReduce");
  return real(in, out, count, type, op, comm, stream);
}

ncclResult_t ncclReduceScatter(const void* in, void* out, size_t out_count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  static const auto real = nccl_function<decltype(ncclReduceScatter)>("ncclReduceScatter");
  return real(in, out, out_count, type, op, comm, stream);
}

ncclResult_t ncclAllGather(const void* in, void* out, size_t in_count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  static const auto real = nccl_function<decltype(ncclAllGather)>("ncclAllGather");
  return real(in, out, in_count, type, comm, stream);
}

ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  static const auto real = nccl_function<decltype(ncclBroadcast)>("ncclBroadcast");
  return real(in, out, count, type, root, comm, stream);
}

ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int to, ncclComm_t comm,
                      cudaStream_t stream) {
  static const auto real = nccl_function<decltype(ncclSend)>("ncclSend");
  return real(data, count, type, to, comm, stream);
}

ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int from, ncclComm_t comm,
                      cudaStream_t stream) {
  static const auto real = nccl_function<decltype(ncclRecv)>("ncclRecv");
  return real(data, count, type, from, comm, stream);
}

ncclResult_t ncclGroupStart() {
  static const auto real = nccl_function<decltype(ncclGroupStart)>("ncclGroupStart");
  return real();
}

ncclResult_t ncclGroupEnd() {
  static const auto real = nccl_function<decltype(ncclGroupEnd)>("ncclGroupEnd");
  return real();
}

}  // extern "C"
