levin_test(profilers TORCH FILES
  profilers/flop_counter_test.cpp
  profilers/memory_test.cpp
  profilers/nvtx_profiler_test.cpp
  profilers/simple_profiler_test.cpp
  profilers/time_split_test.cpp
  profilers/trace_profiler_test.cpp)

# Stands in for NVIDIA's libraries, where there are none: NVTX by its path, NVML and the driver by their names.
add_library(levin_stand_in_nvidia SHARED support/stand_in_nvidia.cpp)
target_compile_features(levin_stand_in_nvidia PRIVATE cxx_std_20)
set_target_properties(levin_stand_in_nvidia PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/nvidia")
add_custom_command(TARGET levin_stand_in_nvidia POST_BUILD
  COMMAND "${CMAKE_COMMAND}" -E create_symlink $<TARGET_FILE_NAME:levin_stand_in_nvidia> libnvidia-ml.so.1
  COMMAND "${CMAKE_COMMAND}" -E create_symlink $<TARGET_FILE_NAME:levin_stand_in_nvidia> libcuda.so.1
  WORKING_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/nvidia" VERBATIM)
add_dependencies(profilers_test levin_stand_in_nvidia)
