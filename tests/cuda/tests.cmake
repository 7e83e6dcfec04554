# On a GPU, where there is one; skipped with the reason elsewhere. Built wherever the CUDA component is.
if(NOT TARGET levin_cuda)
  return()
endif()
levin_test(cuda TORCH LABEL cuda FILES
  cuda/gpu_driver_test.cpp
  cuda/gpu_graph_test.cpp
  cuda/gpu_memory_test.cpp
  cuda/gpu_ranks_test.cpp
  cuda/gpu_recorded_test.cpp
  cuda/gpu_training_test.cpp)
add_dependencies(cuda_test levin_cuda levin_stand_in_nvidia)

# The same tests without a GPU: LibTorch's CUDA part on a simulated one (support/simulated_gpu), whose kernels are the
# CPU's. The tests of the component are left out: they use a driver of their own.
set(simulated ${CMAKE_CURRENT_SOURCE_DIR}/support/simulated_gpu)
set(simulated_folder ${CMAKE_BINARY_DIR}/tests/simulated_gpu)
add_library(levin_simulated_gpu SHARED
  ${simulated}/blas.cpp
  ${simulated}/memory.cpp
  ${simulated}/nccl.cpp
  ${simulated}/nccl_meeting.cpp
  ${simulated}/nccl_numbers.cpp
  ${simulated}/not_simulated.cpp
  ${simulated}/report.cpp
  ${simulated}/runtime_device.cpp
  ${simulated}/runtime_graphs.cpp
  ${simulated}/runtime_kernels.cpp
  ${simulated}/runtime_memory.cpp
  ${simulated}/runtime_streams.cpp
  ${simulated}/stream.cpp)
add_library(levin_simulated_driver SHARED ${simulated}/driver.cpp)
set_target_properties(levin_simulated_driver PROPERTIES OUTPUT_NAME cuda SOVERSION 1)
foreach(target levin_simulated_gpu levin_simulated_driver)  # below LibTorch, not on it
  target_include_directories(${target} SYSTEM PRIVATE
    $<TARGET_PROPERTY:levin::torch_cuda,INTERFACE_INCLUDE_DIRECTORIES>)
endforeach()
add_library(levin_simulated_operators SHARED
  ${simulated}/operator_arguments.cpp
  ${simulated}/operator_random.cpp
  ${simulated}/operators.cpp)
target_link_libraries(levin_simulated_operators PRIVATE levin_simulated_gpu levin::torch_cuda)
set(simulated_targets levin_simulated_gpu levin_simulated_driver levin_simulated_operators)
foreach(target ${simulated_targets})
  target_compile_features(${target} PRIVATE cxx_std_20)
  target_link_libraries(${target} PRIVATE levin_warnings)
  set_target_properties(${target} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${simulated_folder})
endforeach()
add_dependencies(cuda_test ${simulated_targets})
set(simulated_environment "LD_PRELOAD=$<TARGET_FILE:levin_simulated_gpu>" "LD_LIBRARY_PATH=${simulated_folder}"
  "SIMULATED_GPU_OPERATORS=$<TARGET_FILE:levin_simulated_operators>")
foreach(way IN ITEMS in_order on_threads)
  add_test(NAME simulated_gpu.${way} COMMAND cuda_test --gtest_filter=-GpuComponent.*)
  set(environment ${simulated_environment})
  if(way STREQUAL "on_threads")  # each stream's work runs later, and slowly: what does not wait for it reads too early
    list(APPEND environment SIMULATED_GPU_THREADS=1 SIMULATED_GPU_KERNEL_US=50)
  endif()
  set_tests_properties(simulated_gpu.${way} PROPERTIES LABELS cuda TIMEOUT 300 ENVIRONMENT "${environment}")
endforeach()
# Several ranks, each on a GPU of its own: tests of tests/ranks by gloo, and by NCCL on streams that work late.
foreach(backend IN ITEMS gloo nccl)
  set(names equivalence notes agreement idle_rank recompute)
  set(environment ${simulated_environment} SIMULATED_GPUS=4 "LEVIN_TEST_ON_GPUS=${backend}")
  if(backend STREQUAL "nccl")
    list(APPEND names record fsdp fsdp_checkpoint stopping faults)
    list(APPEND environment SIMULATED_GPU_THREADS=1 SIMULATED_GPU_KERNEL_US=20)
  endif()
  foreach(name IN LISTS names)
    add_test(NAME simulated_gpu.${backend}_${name}
      COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_SOURCE_DIR}/ranks/${name}_test.py" "${levin_programs}/rank_program")
    set_tests_properties(simulated_gpu.${backend}_${name} PROPERTIES LABELS cuda TIMEOUT 600
      ENVIRONMENT "${environment}")
  endforeach()
endforeach()
levin_test(simulated_gpu LABEL cuda LIBS levin_simulated_gpu FILES support/simulated_gpu_test.cpp)
target_include_directories(simulated_gpu_test SYSTEM PRIVATE
  $<TARGET_PROPERTY:levin::torch_cuda,INTERFACE_INCLUDE_DIRECTORIES>)
add_test(NAME simulated_gpu.runs COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_SOURCE_DIR}/cuda/simulated_runs_test.py"
  $<TARGET_FILE:levin_tool> $<TARGET_FILE:levin_simulated_gpu> $<TARGET_FILE:levin_simulated_operators>)
set_tests_properties(simulated_gpu.runs PROPERTIES LABELS cuda TIMEOUT 900)
