// NCCL. A collective is work of its stream: with several ranks, each a process, it waits there for the others, through
// memory that they share. So those need streams that work on threads of their own (Settings::own_threads).
#include <nccl.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>

#include "memory.h"
#include "nccl_meeting.h"
#include "nccl_numbers.h"
#include "report.h"
#include "settings.h"
#include "stream.h"

using namespace simulated;

namespace {

using Kind = CollectiveCall::Kind;

struct Group {
  int rank = 0;
  std::unique_ptr<Meeting> meeting;  // none with one rank
};

Group& group_of(ncclComm_t handle) {
  return *reinterpret_cast<Group*>(handle);
}

char* on_host(const void* address) {
  return static_cast<char*>(DeviceMemory::instance().on_host(address));
}

struct Collective {
  CollectiveCall call;
  const void* from = nullptr;
  void* to = nullptr;

  [[nodiscard]] ncclDataType_t type() const { return static_cast<ncclDataType_t>(call.type); }
  [[nodiscard]] size_t width() const { return bytes_of(type()); }
  [[nodiscard]] char* input() const { return on_host(from); }
  [[nodiscard]] char* output() const { return on_host(to); }
};

// Calls part(first, numbers) for as much as fits into a slot. False, as everywhere here: the group was aborted.
template <class Part>
bool in_parts(const Collective& what, Part part) {
  const size_t most = Meeting::kSlotBytes / what.width(), all = what.call.numbers;
  for (size_t first = 0; first < all; first += most) {
    if (!part(first, std::min(most, all - first))) return false;
  }
  return true;
}

std::vector<const char*> slots(const Meeting& ranks) {
  std::vector<const char*> all;
  for (int rank = 0; rank < ranks.ranks(); ++rank) all.push_back(ranks.slot(rank));
  return all;
}

// `from`: this rank's numbers; `receives`: it gets what all ranks' make together, in `to`.
bool reduce(Meeting& ranks, const Collective& what, const char* from, char* to, bool receives) {
  return in_parts(what, [&](size_t first, size_t numbers) {
    const size_t begin = first * what.width();
    std::memcpy(ranks.slot(ranks.rank()), from + begin, numbers * what.width());
    if (!ranks.wait()) return false;
    if (receives) combine(slots(ranks), to + begin, numbers, what.type(), static_cast<ncclRedOp_t>(what.call.op));
    return ranks.wait();
  });
}

bool reduce_scatter(Meeting& ranks, const Collective& what) {
  const size_t bytes = what.call.numbers * what.width();
  for (int rank = 0; rank < ranks.ranks(); ++rank) {
    const char* part = what.input() + bytes * static_cast<size_t>(rank);
    if (!reduce(ranks, what, part, what.output(), rank == ranks.rank())) return false;
  }
  return true;
}

bool broadcast(Meeting& ranks, const Collective& what) {
  return in_parts(what, [&](size_t first, size_t numbers) {
    const size_t begin = first * what.width(), bytes = numbers * what.width();
    if (ranks.rank() == what.call.root) std::memcpy(ranks.slot(what.call.root), what.input() + begin, bytes);
    if (!ranks.wait()) return false;
    std::memcpy(what.output() + begin, ranks.slot(what.call.root), bytes);
    return ranks.wait();
  });
}

bool all_gather(Meeting& ranks, const Collective& what) {
  return in_parts(what, [&](size_t first, size_t numbers) {
    const size_t begin = first * what.width(), bytes = numbers * what.width();
    std::memcpy(ranks.slot(ranks.rank()), what.input() + begin, bytes);
    if (!ranks.wait()) return false;
    for (int rank = 0; rank < ranks.ranks(); ++rank) {
      const size_t place = static_cast<size_t>(rank) * what.call.numbers * what.width();
      std::memcpy(what.output() + place + begin, ranks.slot(rank), bytes);
    }
    return ranks.wait();
  });
}

void run(Meeting& ranks, const Collective& what) {
  if (!ranks.agree(what.call)) return;
  switch (what.call.kind) {
    case Kind::all_reduce: (void)reduce(ranks, what, what.input(), what.output(), true); return;
    case Kind::reduce: (void)reduce(ranks, what, what.input(), what.output(), ranks.rank() == what.call.root); return;
    case Kind::broadcast: (void)broadcast(ranks, what); return;
    case Kind::all_gather: (void)all_gather(ranks, what); return;
    case Kind::reduce_scatter: (void)reduce_scatter(ranks, what); return;
  }
}

void copy(const Collective& what) {
  if (what.from != what.to) std::memmove(what.output(), what.input(), what.call.numbers * what.width());
}

ncclResult_t put(const char* name, const Collective& what, ncclComm_t handle, cudaStream_t stream) {
  if (what.width() == 0 || what.call.op > ncclAvg) return ncclInvalidArgument;
  Meeting* meeting = group_of(handle).meeting.get();
  const auto work = [=] { meeting == nullptr ? copy(what) : run(*meeting, what); };
  return enqueue(stream, {name, settings().kernel_us, work}) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t join(ncclComm_t* handle, int ranks, const ncclUniqueId& id, int rank) {
  if (ranks > 1 && !settings().own_threads) {
    std::fprintf(stderr,
                 "simulated GPU: NCCL with several ranks needs SIMULATED_GPU_THREADS=1. Set it, or use gloo.\n");
    return ncclInvalidUsage;
  }
  auto* group = new Group{rank, nullptr};
  if (ranks > 1) group->meeting = std::make_unique<Meeting>(id.internal, ranks, rank);
  *handle = reinterpret_cast<ncclComm_t>(group);
  return ncclSuccess;
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::snprintf(id->internal, sizeof id->internal, "simulated_nccl_%08x%08x", std::random_device()(),
                std::random_device()());
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* group, int ranks, ncclUniqueId id, int rank) {
  return join(group, ranks, id, rank);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* group, int ranks, ncclUniqueId id, int rank, ncclConfig_t*) {
  return join(group, ranks, id, rank);
}

ncclResult_t ncclCommInitRankScalable(ncclComm_t* group, int ranks, int rank, int, ncclUniqueId* ids, ncclConfig_t*) {
  return join(group, ranks, *ids, rank);
}

// LibTorch's threads may still ask about a group that is gone: it is kept.
ncclResult_t ncclCommDestroy(ncclComm_t group) {
  count("ncclCommDestroy");
  if (group_of(group).meeting) group_of(group).meeting->leave();
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t group) {
  count("ncclCommAbort");
  if (group_of(group).meeting) group_of(group).meeting->abort();
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t) {
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t group, ncclResult_t* result) {
  const Meeting* meeting = group_of(group).meeting.get();
  *result = meeting != nullptr && meeting->has_lost_a_rank() ? ncclRemoteError : ncclSuccess;
  return ncclSuccess;
}

ncclResult_t ncclCommCount(ncclComm_t group, int* ranks) {
  *ranks = group_of(group).meeting ? group_of(group).meeting->ranks() : 1;
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(ncclComm_t group, int* rank) {
  *rank = group_of(group).rank;
  return ncclSuccess;
}

ncclResult_t ncclCommRegister(ncclComm_t, void*, size_t, void** handle) {
  *handle = nullptr;
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(ncclComm_t, void*) {
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError ? "remote process exited or there was a network error"
                                   : "an error of the simulated NCCL";
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

ncclResult_t ncclAllReduce(const void* from, void* to, size_t numbers, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t group, cudaStream_t stream) {
  return put("ncclAllReduce", {{Kind::all_reduce, type, op, 0, numbers}, from, to}, group, stream);
}

ncclResult_t ncclReduce(const void* from, void* to, size_t numbers, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t group, cudaStream_t stream) {
  return put("ncclReduce", {{Kind::reduce, type, op, root, numbers}, from, to}, group, stream);
}

ncclResult_t ncclBroadcast(const void* from, void* to, size_t numbers, ncclDataType_t type, int root, ncclComm_t group,
                           cudaStream_t stream) {
  return put("ncclBroadcast", {{Kind::broadcast, type, 0, root, numbers}, from, to}, group, stream);
}

ncclResult_t ncclBcast(void* place, size_t numbers, ncclDataType_t type, int root, ncclComm_t group,
                       cudaStream_t stream) {
  return put("ncclBcast", {{Kind::broadcast, type, 0, root, numbers}, place, place}, group, stream);
}

ncclResult_t ncclAllGather(const void* from, void* to, size_t numbers, ncclDataType_t type, ncclComm_t group,
                           cudaStream_t stream) {
  return put("ncclAllGather", {{Kind::all_gather, type, 0, 0, numbers}, from, to}, group, stream);
}

ncclResult_t ncclReduceScatter(const void* from, void* to, size_t numbers, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t group, cudaStream_t stream) {
  return put("ncclReduceScatter", {{Kind::reduce_scatter, type, op, 0, numbers}, from, to}, group, stream);
}

}  // extern "C"
