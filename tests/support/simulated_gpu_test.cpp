// The simulated GPU has CUDA's rules: of what the host may read, and of what may be captured.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <nccl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

namespace levin::simulated_gpu_test {
namespace {

constexpr size_t kNumbers = 4, kBytes = kNumbers * sizeof(int);

struct Allocated {
  Allocated() { EXPECT_EQ(cudaMalloc(&address, kBytes), cudaSuccess); }
  ~Allocated() { EXPECT_EQ(cudaFree(address), cudaSuccess); }
  void* address = nullptr;
};

struct Pinned {
  Pinned() { EXPECT_EQ(cudaHostAlloc(&address, kBytes, 0), cudaSuccess); }
  ~Pinned() { EXPECT_EQ(cudaFreeHost(address), cudaSuccess); }
  [[nodiscard]] int& operator[](size_t i) const { return static_cast<int*>(address)[i]; }
  void* address = nullptr;
};

cudaStream_t new_stream() {
  cudaStream_t stream = nullptr;
  EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  return stream;
}

cudaEvent_t event_on(cudaStream_t stream) {
  cudaEvent_t event = nullptr;
  EXPECT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(event, stream), cudaSuccess);
  return event;
}

cudaError_t copy(void* to, const void* from, cudaStream_t stream) {
  return cudaMemcpyAsync(to, from, kBytes, cudaMemcpyDefault, stream);
}

cudaError_t end(cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  const cudaError_t error = cudaStreamEndCapture(stream, &graph);
  EXPECT_EQ(graph != nullptr, error == cudaSuccess);
  return error;
}

TEST(SimulatedGpu, KeepsWhatIsCopiedAndHidesItFromTheHost) {
  const Allocated device;
  const std::vector<int> sent = {1, 2, 3, 4};
  std::vector<int> received(kNumbers);
  const cudaStream_t stream = new_stream();
  ASSERT_EQ(copy(device.address, sent.data(), stream), cudaSuccess);
  ASSERT_EQ(copy(received.data(), device.address, stream), cudaSuccess);
  EXPECT_EQ(received, sent);
  EXPECT_EXIT((void)*static_cast<volatile int*>(device.address), ::testing::KilledBySignal(SIGSEGV), "");
}

TEST(SimulatedGpu, DoesWhatIsCapturedAtEachLaunch) {
  const Allocated device;
  const Pinned from, to;
  from[0] = 1;
  to[0] = 0;
  const cudaStream_t stream = new_stream();
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  ASSERT_EQ(copy(device.address, from.address, stream), cudaSuccess);
  ASSERT_EQ(copy(to.address, device.address, stream), cudaSuccess);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  EXPECT_EQ(to[0], 0);
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaGraphInstantiateWithFlags(&executable, graph, 0), cudaSuccess);
  for (const int number : {5, 6}) {
    from[0] = number;
    ASSERT_EQ(cudaGraphLaunch(executable, stream), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(to[0], number);
  }
}

TEST(SimulatedGpu, GivesNoGraphAfterACallThatWaits) {
  using Call = std::function<cudaError_t(cudaStream_t)>;
  const std::vector<Call> calls = {[](cudaStream_t stream) { return cudaStreamSynchronize(stream); },
                                   [](cudaStream_t) { return cudaDeviceSynchronize(); },
                                   [](cudaStream_t) {
                                     void* address = nullptr;
                                     return cudaMalloc(&address, 8);
                                   }};
  for (const Call& call : calls) {
    const cudaStream_t stream = new_stream();
    ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    EXPECT_EQ(call(stream), cudaErrorStreamCaptureUnsupported);
    EXPECT_EQ(end(stream), cudaErrorStreamCaptureInvalidated);
  }
}

TEST(SimulatedGpu, CapturesAnotherStreamThatJoinsAndComesBack) {
  const Allocated device;
  const Pinned here;
  for (const bool comes_back : {true, false}) {
    const cudaStream_t first = new_stream(), second = new_stream();
    ASSERT_EQ(cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    ASSERT_EQ(cudaStreamWaitEvent(second, event_on(first), 0), cudaSuccess);
    ASSERT_EQ(copy(device.address, here.address, second), cudaSuccess);
    if (comes_back) {
      ASSERT_EQ(cudaStreamWaitEvent(first, event_on(second), 0), cudaSuccess);
    }
    EXPECT_EQ(end(first), comes_back ? cudaSuccess : cudaErrorStreamCaptureUnjoined);
  }
}

TEST(SimulatedGpu, CapturesNoWaitForWhatIsNotCaptured) {
  const cudaStream_t stream = new_stream();
  const cudaEvent_t before = event_on(stream);
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(stream, before, 0), cudaErrorStreamCaptureIsolation);
  EXPECT_EQ(end(stream), cudaErrorStreamCaptureInvalidated);
}

// This process is rank 1, its child rank 0. Ends when the collective has been done.
void run_ranks(
    const std::function<ncclResult_t(int rank, void* numbers, ncclComm_t group, cudaStream_t stream)>& call) {
  ::setenv("SIMULATED_GPU_THREADS", "1", 1);
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  const int rank = ::fork() == 0 ? 0 : 1;
  ncclComm_t group = nullptr;
  ASSERT_EQ(ncclCommInitRank(&group, 2, id, rank), ncclSuccess);
  const Allocated device;
  const std::vector<int> own = {rank, 10, 20, 30};
  std::vector<int> received(kNumbers);
  const cudaStream_t stream = new_stream();
  ASSERT_EQ(copy(device.address, own.data(), stream), cudaSuccess);
  ASSERT_EQ(call(rank, device.address, group, stream), ncclSuccess);
  ASSERT_EQ(copy(received.data(), device.address, stream), cudaSuccess);
  if (rank == 0) ::_exit(0);
  const bool is_sum = received == std::vector<int>{1, 20, 40, 60};
  std::fprintf(stderr, "rank 1 has %s\n", is_sum ? "the sum" : "something else");
  ::_exit(0);
}

ncclResult_t all_reduce(int /*rank*/, void* numbers, ncclComm_t group, cudaStream_t stream) {
  return ncclAllReduce(numbers, numbers, kNumbers, ncclInt32, ncclSum, group, stream);
}

class SimulatedNccl : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }  // streams are to work on threads there
  void TearDown() override { GTEST_FLAG_SET(death_test_style, "fast"); }
};

TEST_F(SimulatedNccl, SumsOverRanks) {
  EXPECT_EXIT(run_ranks(all_reduce), ::testing::ExitedWithCode(0), "rank 1 has the sum");
}

TEST_F(SimulatedNccl, NamesRanksThatCallDifferentCollectives) {
  const auto call = [](int rank, void* numbers, ncclComm_t group, cudaStream_t stream) {
    if (rank == 1) return all_reduce(rank, numbers, group, stream);
    return ncclBroadcast(numbers, numbers, kNumbers, ncclInt32, 0, group, stream);
  };
  EXPECT_EXIT(run_ranks(call), ::testing::KilledBySignal(SIGABRT),
              "rank 1 calls all_reduce of 4 numbers of type 2, operation 0, root 0, rank 0 calls broadcast");
}

TEST_F(SimulatedNccl, WithSeveralRanksNeedsStreamsOfTheirOwnThreads) {
  const auto join = [] {
    ::unsetenv("SIMULATED_GPU_THREADS");
    ncclComm_t group = nullptr;
    ::_exit(ncclCommInitRank(&group, 2, {}, 0) == ncclInvalidUsage ? 0 : 1);
  };
  EXPECT_EXIT(join(), ::testing::ExitedWithCode(0), "NCCL with several ranks needs SIMULATED_GPU_THREADS=1");
}

}  // namespace
}  // namespace levin::simulated_gpu_test
