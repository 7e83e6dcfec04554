// NCCL with one rank in a group, where a collective is a copy.
#include <nccl.h>

#include <cstdio>
#include <cstring>

#include "memory.h"
#include "report.h"
#include "settings.h"
#include "stream.h"

using namespace simulated;

namespace {

struct Group {
  int rank = 0;
};

size_t bytes_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8: return 1;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64: return 8;
    default: return 4;
  }
}

ncclResult_t copy(const char* name, const void* from, void* to, size_t numbers, ncclDataType_t type,
                  cudaStream_t stream) {
  const auto move = [=, bytes = numbers * bytes_of(type)] {
    const DeviceMemory& memory = DeviceMemory::instance();
    if (from != to) std::memmove(memory.on_host(to), memory.on_host(from), bytes);
  };
  return enqueue(stream, {name, settings().kernel_us, move}) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t join(ncclComm_t* group, int ranks, int rank) {
  if (ranks != 1) {
    std::fprintf(stderr, "simulated GPU: NCCL has one rank here, not %d. Use gloo.\n", ranks);
    return ncclInvalidArgument;
  }
  *group = reinterpret_cast<ncclComm_t>(new Group{rank});
  return ncclSuccess;
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::memset(id, 1, sizeof *id);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* group, int ranks, ncclUniqueId, int rank) {
  return join(group, ranks, rank);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* group, int ranks, ncclUniqueId, int rank, ncclConfig_t*) {
  return join(group, ranks, rank);
}

ncclResult_t ncclCommInitRankScalable(ncclComm_t* group, int ranks, int rank, int, ncclUniqueId*, ncclConfig_t*) {
  return join(group, ranks, rank);
}

// LibTorch's threads may still ask about a group that is gone: it is kept.
ncclResult_t ncclCommDestroy(ncclComm_t) {
  count("ncclCommDestroy");
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t) {
  count("ncclCommAbort");
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t) {
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* result) {
  *result = ncclSuccess;
  return ncclSuccess;
}

ncclResult_t ncclCommCount(ncclComm_t, int* ranks) {
  *ranks = 1;
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(ncclComm_t group, int* rank) {
  *rank = reinterpret_cast<Group*>(group)->rank;
  return ncclSuccess;
}

ncclResult_t ncclCommRegister(ncclComm_t, void*, size_t, void** handle) {
  *handle = nullptr;
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(ncclComm_t, void*) {
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t) {
  return "an error of the simulated NCCL";
}

const char* ncclGetLastError(ncclComm_t) {
  return "";
}

ncclResult_t ncclGroupStart() {
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t numbers, ncclDataType_t type, ncclRedOp_t, ncclComm_t,
                           cudaStream_t stream) {
  return copy("ncclAllReduce", from, to, numbers, type, stream);
}

ncclResult_t ncclReduce(const void* from, void* to, size_t numbers, ncclDataType_t type, ncclRedOp_t, int, ncclComm_t,
                        cudaStream_t stream) {
  return copy("ncclReduce", from, to, numbers, type, stream);
}

ncclResult_t ncclBroadcast(const void* from, void* to, size_t numbers, ncclDataType_t type, int, ncclComm_t,
                           cudaStream_t stream) {
  return copy("ncclBroadcast", from, to, numbers, type, stream);
}

ncclResult_t ncclBcast(void* numbers_of, size_t numbers, ncclDataType_t type, int, ncclComm_t, cudaStream_t stream) {
  return copy("ncclBcast", numbers_of, numbers_of, numbers, type, stream);
}

ncclResult_t ncclAllGather(const void* from, void* to, size_t numbers, ncclDataType_t type, ncclComm_t,
                           cudaStream_t stream) {
  return copy("ncclAllGather", from, to, numbers, type, stream);
}

ncclResult_t ncclReduceScatter(const void* from, void* to, size_t numbers, ncclDataType_t type, ncclRedOp_t, ncclComm_t,
                               cudaStream_t stream) {
  return copy("ncclReduceScatter", from, to, numbers, type, stream);
}

}  // extern "C"
