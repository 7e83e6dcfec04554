// cuBLAS and cuBLASLt: matrix products, which take their time and compute nothing.
#include <cublasLt.h>
#include <cublas_v2.h>

#include <algorithm>
#include <string>

#include "settings.h"
#include "stream.h"

using namespace simulated;

namespace {

// Floating-point operations a microsecond.
constexpr double kTensorCores = 5e8, kFloat32 = 4e7;

struct Handle {
  cudaStream_t stream = nullptr;
  cublasMath_t math = CUBLAS_DEFAULT_MATH;
  cublasPointerMode_t pointers = CUBLAS_POINTER_MODE_HOST;
};

struct Layout {
  cudaDataType type = CUDA_R_32F;
  double rows = 0, columns = 0, batch = 1;
};

Handle& of(cublasHandle_t handle) {
  return *reinterpret_cast<Handle*>(handle);
}

Layout& of(cublasLtMatrixLayout_t layout) {
  return *reinterpret_cast<Layout*>(layout);
}

cublasStatus_t multiply(cudaStream_t stream, const char* name, double operations, double speed) {
  const cudaError_t error = enqueue(stream, {name, settings().kernel_us + operations / speed});
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

cublasStatus_t multiply(cublasHandle_t handle, const char* name, double m, double n, double k, double batch,
                        double speed) {
  return multiply(of(handle).stream, name, 2 * m * n * k * batch, speed);
}

}  // namespace

extern "C" {

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  *handle = reinterpret_cast<cublasHandle_t>(new Handle);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  delete &of(handle);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  of(handle).stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t, void*, size_t) {
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t* mode) {
  *mode = of(handle).math;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  of(handle).math = mode;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t* mode) {
  *mode = of(handle).pointers;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t mode) {
  of(handle).pointers = mode;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t, cublasOperation_t, int m, int n, int k,
                              const float*, const float*, int, const float*, int, const float*, float*, int) {
  return multiply(handle, "cublasSgemm", m, n, k, 1, kFloat32);
}

cublasStatus_t cublasDgemm_v2(cublasHandle_t handle, cublasOperation_t, cublasOperation_t, int m, int n, int k,
                              const double*, const double*, int, const double*, int, const double*, double*, int) {
  return multiply(handle, "cublasDgemm", m, n, k, 1, kFloat32);
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t, cublasOperation_t, int m, int n, int k,
                            const void*, const void*, cudaDataType, int, const void*, cudaDataType, int, const void*,
                            void*, cudaDataType, int, cublasComputeType_t, cublasGemmAlgo_t) {
  return multiply(handle, "cublasGemmEx", m, n, k, 1, kTensorCores);
}

cublasStatus_t cublasSgemmEx(cublasHandle_t handle, cublasOperation_t, cublasOperation_t, int m, int n, int k,
                             const float*, const void*, cudaDataType, int, const void*, cudaDataType, int, const float*,
                             void*, cudaDataType, int) {
  return multiply(handle, "cublasSgemmEx", m, n, k, 1, kTensorCores);
}

cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t handle, cublasOperation_t, cublasOperation_t, int m, int n,
                                         int k, const float*, const float*, int, long long, const float*, int,
                                         long long, const float*, float*, int, long long, int batch) {
  return multiply(handle, "cublasSgemmStridedBatched", m, n, k, batch, kFloat32);
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t, cublasOperation_t, int m, int n,
                                          int k, const void*, const void*, cudaDataType, int, long long, const void*,
                                          cudaDataType, int, long long, const void*, void*, cudaDataType, int,
                                          long long, int batch, cublasComputeType_t, cublasGemmAlgo_t) {
  return multiply(handle, "cublasGemmStridedBatchedEx", m, n, k, batch, kTensorCores);
}

cublasStatus_t cublasSgemv_v2(cublasHandle_t handle, cublasOperation_t, int m, int n, const float*, const float*, int,
                              const float*, int, const float*, float*, int) {
  return multiply(handle, "cublasSgemv", m, n, 1, 1, kFloat32);
}

cublasStatus_t cublasSdot_v2(cublasHandle_t handle, int n, const float*, int, const float*, int, float*) {
  return multiply(handle, "cublasSdot", n, 1, 1, 1, kFloat32);
}

size_t cublasLtGetVersion() {
  return CUBLAS_VERSION;
}

// Descriptions of which nothing is asked.
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* description, cublasComputeType_t, cudaDataType_t) {
  *description = reinterpret_cast<cublasLtMatmulDesc_t>(new Handle);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  delete reinterpret_cast<Handle*>(description);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t, const void*,
                                              size_t) {
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = reinterpret_cast<cublasLtMatmulPreference_t>(new Handle);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete reinterpret_cast<Handle*>(preference);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t,
                                                    const void*, size_t) {
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type, uint64_t rows,
                                          uint64_t columns, int64_t) {
  *layout = reinterpret_cast<cublasLtMatrixLayout_t>(
      new Layout{type, static_cast<double>(rows), static_cast<double>(columns)});
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete &of(layout);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t which,
                                                const void* value, size_t) {
  if (which == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) of(layout).batch = *static_cast<const int*>(value);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t, int, cublasLtMatmulHeuristicResult_t* result,
                                              int* found) {
  *result = {};
  result->state = CUBLAS_STATUS_SUCCESS;
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

// A is rows x k or, transposed, k x rows.
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t, const void*, const void*,
                              cublasLtMatrixLayout_t a, const void*, cublasLtMatrixLayout_t, const void*, const void*,
                              cublasLtMatrixLayout_t, void*, cublasLtMatrixLayout_t result, const cublasLtMatmulAlgo_t*,
                              void*, size_t, cudaStream_t stream) {
  const Layout& d = of(result);
  const double k = of(a).rows * of(a).columns / std::max(1.0, d.rows);
  const double speed = d.type == CUDA_R_32F ? kFloat32 : kTensorCores;
  return multiply(stream, "cublasLtMatmul", 2 * d.rows * d.columns * k * d.batch, speed);
}

}  // extern "C"
