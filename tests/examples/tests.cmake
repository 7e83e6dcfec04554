# The example programs, the run files of configs/ and the `levin` tool as users run them: see run_example.py.
if(NOT LEVIN_BUILD_EXAMPLES OR NOT LEVIN_BUILD_TOOL)
  return()
endif()
set(examples_script "${CMAKE_CURRENT_LIST_DIR}/run_example.py")
file(GLOB examples_configs CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/configs/*.yaml")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${examples_script}" ${examples_configs})
execute_process(COMMAND "${Python3_EXECUTABLE}" -B "${examples_script}" --source "${PROJECT_SOURCE_DIR}" list
  OUTPUT_VARIABLE examples_cases OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
string(REPLACE "\n" ";" examples_cases "${examples_cases}")
foreach(line IN LISTS examples_cases)
  separate_arguments(words UNIX_COMMAND "${line}")
  list(POP_FRONT words name)
  add_test(NAME examples.${name} COMMAND Python3::Interpreter -B "${examples_script}" --bin "${PROJECT_BINARY_DIR}/bin"
    --source "${PROJECT_SOURCE_DIR}" --scratch "${CMAKE_CURRENT_BINARY_DIR}/examples" ${words})
  set_tests_properties(examples.${name} PROPERTIES LABELS examples TIMEOUT 300)
endforeach()

add_test(NAME examples.serve COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/serve_test.py"
  "${PROJECT_BINARY_DIR}/bin" "${PROJECT_SOURCE_DIR}")
set_tests_properties(examples.serve PROPERTIES LABELS examples TIMEOUT 300 COST 30)

# MPI is not clean under the sanitizers, and a Fortran program cannot load a library with them.
if(NOT LEVIN_SANITIZE)
  add_test(NAME examples.pendulum COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/pendulum_test.py"
    "${PROJECT_SOURCE_DIR}" "${PROJECT_BINARY_DIR}" "${MPIEXEC_EXECUTABLE}")
  set_tests_properties(examples.pendulum PROPERTIES LABELS examples TIMEOUT 300 COST 30)
endif()

add_test(NAME examples.reinforcement COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/reinforcement_test.py"
  "${PROJECT_BINARY_DIR}/bin")
set_tests_properties(examples.reinforcement PROPERTIES LABELS examples TIMEOUT 600 COST 60)

# The models that the tool brings along, and parts of the agents.
levin_test(examples TORCH LIBS levin_example_models FILES
  examples/bible_test.cpp
  examples/encoder_test.cpp
  examples/gpt_test.cpp
  examples/memory_plan_test.cpp
  examples/reinforcement_test.cpp
  examples/resnet_test.cpp
  examples/thousand_layers_test.cpp)
target_include_directories(examples_test PRIVATE "${PROJECT_SOURCE_DIR}/examples" "${PROJECT_SOURCE_DIR}/bench")

add_test(NAME examples.loops COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/loops_test.py"
  "${PROJECT_BINARY_DIR}/bin" "${PROJECT_SOURCE_DIR}")
set_tests_properties(examples.loops PROPERTIES LABELS examples TIMEOUT 300 COST 20)
