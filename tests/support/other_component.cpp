// A library as liblevin_cuda.so of another version would be.
extern "C" const char* levin_cuda_version() {
  return "Levin 9.8.7 with LibTorch 1.2";
}
