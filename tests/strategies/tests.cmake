levin_test(strategies TORCH FILES
  strategies/cluster_environment_test.cpp
  strategies/flat_unit_test.cpp
  strategies/init_method_test.cpp
  strategies/loss_gradient_test.cpp
  strategies/own_address_test.cpp
  strategies/place_test.cpp
  strategies/rank_difference_test.cpp
  strategies/rank_timeout_test.cpp
  strategies/single_device_test.cpp
  strategies/step_tape_test.cpp)

levin_test(shm_backend LABEL multi_process FILES
  strategies/hosts_backend_test.cpp
  strategies/rank_messages_test.cpp
  strategies/shm_backend_test.cpp
  strategies/shm_faults_test.cpp)

if(NOT LEVIN_SANITIZE)  # sanitizers have their own malloc
  add_test(NAME strategies.freed_memory COMMAND Python3::Interpreter -B
    "${CMAKE_CURRENT_LIST_DIR}/freed_memory_test.py" "${levin_programs}/freed_memory_program")
  set_tests_properties(strategies.freed_memory PROPERTIES LABELS unit TIMEOUT 600 COST 30)
endif()
