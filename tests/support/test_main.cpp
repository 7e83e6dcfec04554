// main() of every test program: GoogleTest's, with the number of threads that CTest sets too. With num_threads: auto a
// trainer would choose it by time, and a program that is run by hand would not give the same bits twice.
#include <gtest/gtest.h>

#include <cstdlib>

int main(int argc, char** argv) {
  setenv("OMP_NUM_THREADS", "2", /*overwrite=*/0);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
