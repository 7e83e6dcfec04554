// A library that stands in for liblevin_cuda.so of a different version.
extern "C" const char* levin_cuda_version() {
  return "Levin 9.8.7 with LibTorch 1.2";
}
