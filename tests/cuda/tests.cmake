# On a GPU, where there is one; skipped with the reason elsewhere. Built wherever the CUDA component is.
if(NOT TARGET levin_cuda)
  return()
endif()
levin_test(cuda TORCH LABEL cuda FILES
  cuda/gpu_driver_test.cpp
  cuda/gpu_graph_test.cpp
  cuda/gpu_memory_test.cpp
  cuda/gpu_ranks_test.cpp
  cuda/gpu_training_test.cpp)
add_dependencies(cuda_test levin_cuda levin_stand_in_nvidia)
target_compile_definitions(cuda_test PRIVATE LEVIN_STAND_IN_NVIDIA="$<TARGET_FILE:levin_stand_in_nvidia>")
