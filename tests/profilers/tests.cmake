levin_test(profilers FILES
  profilers/simple_profiler_test.cpp)
