levin_test(libtorch FILES
  libtorch/batch_norm_test.cpp
  libtorch/borrowed_keys_test.cpp
  libtorch/device_memory_test.cpp
  libtorch/operator_watch_test.cpp
  libtorch/tcp_store_test.cpp
  libtorch/tensor_memory_test.cpp
  libtorch/thread_state_test.cpp
  libtorch/version_test.cpp)

# Which LibTorch a build accepts.
add_test(NAME libtorch.configure COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/configure_test.py"
  "${PROJECT_SOURCE_DIR}" "${CMAKE_COMMAND}")
set_tests_properties(libtorch.configure PROPERTIES LABELS unit TIMEOUT 120)

add_test(NAME libtorch.vector_math COMMAND "${levin_programs}/vector_math_program")
set_tests_properties(libtorch.vector_math PROPERTIES LABELS unit TIMEOUT 600)
