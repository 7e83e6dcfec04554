# cmake -D KIND=installed|pkgconfig|subdirectory -D SOURCES=… -D BUILD=… -D SCRATCH=… -D COMPILER=…
#   -D BUILD_TYPE=… -D PARTS=core;… -D CUDA=0|1 -P this
# Builds a small project outside the tree against Levin, as a user does, in the folder SCRATCH, which it removes after.
cmake_minimum_required(VERSION 3.25)

function(run)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "OUTPUT" "COMMAND")
  execute_process(COMMAND ${arg_COMMAND} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    list(JOIN arg_COMMAND " " command)
    message(FATAL_ERROR "failed (${status}): ${command}\n${output}")
  endif()
  if(arg_OUTPUT)
    set(${arg_OUTPUT} "${output}" PARENT_SCOPE)
  endif()
endfunction()

function(expect text pattern what)
  if(NOT text MATCHES "${pattern}")
    message(FATAL_ERROR "${what}: expected to match \"${pattern}\", got:\n${text}")
  endif()
endfunction()

# The reason that find_package gives for not finding a part.
function(expect_no_part part reason)
  execute_process(COMMAND ${configure} -DPART=${part} OUTPUT_QUIET ERROR_VARIABLE output)
  string(REGEX REPLACE "[ \n]+" " " output "${output}")
  string(REGEX REPLACE ".* Reason given by package: " "" output "${output}")
  string(STRIP "${output}" output)
  if(NOT output STREQUAL reason)
    message(FATAL_ERROR "the part ${part}: expected the reason \"${reason}\", got:\n${output}")
  endif()
endfunction()

# Checks that each installed part is found alone, and that the error for a missing one says how to get it.
function(check_parts)
  set(known ${PARTS} cuda)
  list(JOIN known ", " names)
  expect_no_part(video "Levin has no part video: its parts are ${names}.")
  file(GLOB_RECURSE core "${SCRATCH}/prefix/*/liblevin_core.so")
  get_filename_component(folder "${core}" DIRECTORY)
  if(NOT CUDA)
    expect_no_part(cuda "This Levin does not have the part cuda: build it with LibTorch for CUDA (./dev setup --cuda), or \
install the package levin-cuda.")
    file(TOUCH "${folder}/liblevin_cuda.so")
  endif()
  run(COMMAND "${CMAKE_COMMAND}" -G Ninja -S "${SOURCES}/tests/consumer/parts" -B "${SCRATCH}/parts" "-DPARTS=${known}"
    "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DCMAKE_PREFIX_PATH=${SCRATCH}/prefix" OUTPUT output)
  foreach(part IN LISTS known)
    expect("${output}" "found the part ${part}\n" "a part that is installed")
  endforeach()
  if(output MATCHES "Warning")
    message(FATAL_ERROR "finding one part after another warns:\n${output}")
  endif()
  file(GLOB arrays "${folder}/liblevin_arrays.so.*")
  file(REMOVE ${arrays})
  expect_no_part(arrays "This Levin does not have the part arrays: build it with -DLEVIN_ARRAYS=ON, or install the package \
levin-arrays.")
endfunction()

file(REMOVE_RECURSE "${SCRATCH}")
file(COPY "${SOURCES}/tests/consumer/${KIND}/" "${SOURCES}/tests/consumer/main.cpp"
  DESTINATION "${SCRATCH}/project")
set(configure "${CMAKE_COMMAND}" -G Ninja -S "${SCRATCH}/project" -B "${SCRATCH}/build"
  "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DCMAKE_BUILD_TYPE=${BUILD_TYPE}"
  "-DCMAKE_CXX_FLAGS_RELEASE=-O0")  # that it builds is what matters here, and so it does sooner

if(KIND STREQUAL "installed")
  run(COMMAND "${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${SCRATCH}/prefix")
  file(GLOB_RECURSE libraries "${SCRATCH}/prefix/*/liblevin_*.so")
  run(COMMAND ldd ${libraries} OUTPUT needed)
  if(needed MATCHES "not found" OR NOT needed MATCHES "liblevin_core")
    message(FATAL_ERROR "the installed libraries do not find what they need:\n${needed}")
  endif()
  if(EXISTS "${SCRATCH}/prefix/bin/levin")  # the tool opens its libraries itself
    run(COMMAND "${SCRATCH}/prefix/bin/levin" --version OUTPUT output)
    expect("${output}" "levin [0-9.]+, LibTorch" "the installed tool")
    file(COPY "${SCRATCH}/prefix/bin/levin" DESTINATION "${SCRATCH}/elsewhere")
    execute_process(COMMAND "${SCRATCH}/elsewhere/levin" --version RESULT_VARIABLE status ERROR_VARIABLE output)
    expect("${status}: ${output}" "^1: error: levin cannot be loaded: liblevin_tool.so.*install Levin again"
      "a tool without its libraries")
  endif()
  list(APPEND configure "-DCMAKE_PREFIX_PATH=${SCRATCH}/prefix")
  run(COMMAND ${configure})
  run(COMMAND "${CMAKE_COMMAND}" --build "${SCRATCH}/build" -j 1)
  run(COMMAND "${SCRATCH}/build/app" OUTPUT output)
  expect("${output}" "consumer: 200 steps, loss is low" "the program's output")
  # Nothing of the build tree may be needed: the program loads the installed library.
  run(COMMAND ldd "${SCRATCH}/build/app" OUTPUT needed)
  expect("${needed}" "${SCRATCH}/prefix/[^ ]*/liblevin" "the library that the program loads")
  check_parts()
elseif(KIND STREQUAL "pkgconfig")
  foreach(component levin_core levin_dev)
    run(COMMAND "${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${SCRATCH}/prefix" --component ${component})
  endforeach()
  file(GLOB_RECURSE found "${SCRATCH}/prefix/*/levin-core.pc")
  get_filename_component(found "${found}" DIRECTORY)
  set(ENV{PKG_CONFIG_PATH} "${found}")
  run(COMMAND make -C "${SCRATCH}/project" "CXX=${COMPILER}" CXXFLAGS=-O0)
  run(COMMAND "${SCRATCH}/project/app" OUTPUT output)
  expect("${output}" "consumer: 200 steps, loss is low" "the program's output")
  run(COMMAND pkg-config --print-requires levin-models OUTPUT output)
  expect("${output}" "levin-core = [0-9.]+\nlevin-text = " "what a part needs")
  run(COMMAND pkg-config --cflags levin-c OUTPUT output)
  expect("${output}" "^-I[^ ]+/include *\n$" "the options of a C compiler")
else()
  # Compiles the user's file and checks that the rest is known how to be built; building all of Levin a second time
  # would double the time of the tests.
  run(COMMAND ${configure} "-DLEVIN_SOURCES=${SOURCES}" "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON")
  run(COMMAND "${CMAKE_COMMAND}" --build "${SCRATCH}/build" --target CMakeFiles/app.dir/main.cpp.o)
  run(COMMAND "${CMAKE_COMMAND}" --build "${SCRATCH}/build" --target app -- -n OUTPUT plan)
  expect("${plan}" "liblevin_core.so" "the plan of the build")
  file(READ "${SCRATCH}/build/compile_commands.json" commands)
  if(commands MATCHES "/tests/core/")
    message(FATAL_ERROR "add_subdirectory builds Levin's tests; LEVIN_BUILD_TESTS must be off below another project")
  endif()
endif()
file(REMOVE_RECURSE "${SCRATCH}")
