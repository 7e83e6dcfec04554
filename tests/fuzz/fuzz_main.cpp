// libFuzzer's functions, for every target: fuzz_support.h declares what a target defines.
#include "fuzz_support.h"

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  levin::fuzz::begin();
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  levin::fuzz::run_one({reinterpret_cast<const char*>(data), size});
  return 0;
}
