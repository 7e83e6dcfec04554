// What LibTorch may call and the simulated GPU lacks. Without these, CUDA's own libraries would be called, with handles
// that are not theirs.
#include <cstdio>
#include <cstdlib>

#define NONE(name)                                                                           \
  int name() {                                                                               \
    std::fprintf(stderr, "simulated GPU: %s is not simulated (not_simulated.cpp)\n", #name); \
    std::abort();                                                                            \
  }

extern "C" {

// clang-format off
NONE(cublasCdotc_v2) NONE(cublasCdotu_v2) NONE(cublasCgelsBatched) NONE(cublasCgemmStridedBatched)
NONE(cublasCgemm_v2) NONE(cublasCgemv_v2) NONE(cublasCgeqrfBatched) NONE(cublasCgetrfBatched)
NONE(cublasCgetrsBatched) NONE(cublasCtrsmBatched) NONE(cublasCtrsm_v2) NONE(cublasDdot_v2) NONE(cublasDgelsBatched)
NONE(cublasDgemmStridedBatched) NONE(cublasDgemv_v2) NONE(cublasDgeqrfBatched) NONE(cublasDgetrfBatched)
NONE(cublasDgetrsBatched) NONE(cublasDotEx) NONE(cublasDtrsmBatched) NONE(cublasDtrsm_v2) NONE(cublasSgelsBatched)
NONE(cublasSgeqrfBatched) NONE(cublasSgetrfBatched) NONE(cublasSgetrsBatched) NONE(cublasStrsmBatched)
NONE(cublasStrsm_v2) NONE(cublasZdotc_v2) NONE(cublasZdotu_v2) NONE(cublasZgelsBatched)
NONE(cublasZgemmStridedBatched) NONE(cublasZgemm_v2) NONE(cublasZgemv_v2) NONE(cublasZgeqrfBatched)
NONE(cublasZgetrfBatched) NONE(cublasZgetrsBatched) NONE(cublasZtrsmBatched) NONE(cublasZtrsm_v2)
NONE(cudaDeviceGetDefaultMemPool) NONE(cudaFreeAsync) NONE(cudaGraphDebugDotPrint) NONE(cudaGraphNodeGetDependencies)
NONE(cudaIpcCloseMemHandle) NONE(cudaIpcGetEventHandle) NONE(cudaIpcGetMemHandle) NONE(cudaIpcOpenEventHandle)
NONE(cudaIpcOpenMemHandle) NONE(cudaMallocAsync) NONE(cudaMemPoolGetAttribute) NONE(cudaMemPoolSetAccess)
NONE(cudaMemPoolSetAttribute) NONE(cudaMemPoolTrimTo) NONE(cudaMemcpyToSymbol) NONE(ncclAlltoAll)
NONE(ncclCommInitAll) NONE(ncclCommShrink) NONE(ncclCommSplit) NONE(ncclCommWindowDeregister)
NONE(ncclCommWindowRegister) NONE(ncclDevCommCreate) NONE(ncclDevCommDestroy) NONE(ncclGroupSimulateEnd)
NONE(ncclMemAlloc) NONE(ncclMemFree) NONE(ncclRecv) NONE(ncclRedOpCreatePreMulSum) NONE(ncclRedOpDestroy)
NONE(ncclSend)
// clang-format on

}  // extern "C"
