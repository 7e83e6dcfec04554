# cmake -D KIND=installed|pkgconfig|subdirectory|fetchcontent -D SOURCES=… -D BUILD=… -D SCRATCH=… -D COMPILER=…
#   -D BUILD_TYPE=… -P this
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
  run(COMMAND ${configure} "-DCMAKE_PREFIX_PATH=${SCRATCH}/prefix")
  run(COMMAND "${CMAKE_COMMAND}" --build "${SCRATCH}/build" -j 1)
  execute_process(COMMAND ${configure} "-DCMAKE_PREFIX_PATH=${SCRATCH}/prefix" -DPART=video RESULT_VARIABLE status
    ERROR_VARIABLE output)
  string(REGEX REPLACE "[ \n]+" " " output "${output}")
  expect("${output}" "Levin has no part video: its parts are core, .*, cuda\\." "a part that does not exist")
  run(COMMAND "${SCRATCH}/build/app" OUTPUT output)
  expect("${output}" "consumer: 200 steps, loss is low" "the program's output")
  # Nothing of the build tree may be needed: the program loads the installed library.
  run(COMMAND ldd "${SCRATCH}/build/app" OUTPUT needed)
  expect("${needed}" "${SCRATCH}/prefix/[^ ]*/liblevin" "the library that the program loads")
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
else()
  # Compiles the user's file and checks that the rest is known how to be built; building all of Levin a second time
  # would double the time of the tests.
  run(COMMAND ${configure} "-DLEVIN_SOURCES=${SOURCES}" "-DFETCHCONTENT_SOURCE_DIR_LEVIN=${SOURCES}"
    "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON")
  run(COMMAND "${CMAKE_COMMAND}" --build "${SCRATCH}/build" --target CMakeFiles/app.dir/main.cpp.o)
  run(COMMAND "${CMAKE_COMMAND}" --build "${SCRATCH}/build" --target app -- -n OUTPUT plan)
  expect("${plan}" "liblevin_core.so" "the plan of the build")
  file(READ "${SCRATCH}/build/compile_commands.json" commands)
  if(commands MATCHES "/tests/core/")
    message(FATAL_ERROR "add_subdirectory builds Levin's tests; LEVIN_BUILD_TESTS must be off below another project")
  endif()
endif()
file(REMOVE_RECURSE "${SCRATCH}")
