# Warnings for Levin's own code only, not for projects that link it.
option(LEVIN_WERROR "Treat warnings as errors" OFF)
add_library(levin_warnings INTERFACE)
target_compile_options(levin_warnings INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor
  -Woverloaded-virtual $<$<BOOL:${LEVIN_WERROR}>:-Werror>)
if(LEVIN_SANITIZE)
  add_compile_options(-fsanitize=${LEVIN_SANITIZE} -fno-omit-frame-pointer)
  if(LEVIN_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=undefined)  # an error fails the test instead of only appearing in its output
  endif()
  add_link_options(-fsanitize=${LEVIN_SANITIZE})
endif()
if(LEVIN_COVERAGE)
  add_compile_options(--coverage -fprofile-update=atomic)  # threads count too
  add_link_options(--coverage)
  target_sources(levin_warnings INTERFACE "${PROJECT_SOURCE_DIR}/tests/support/coverage_dump.cpp")
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 14 takes moves of std::variant for reads of uninitialized memory.
  target_compile_options(levin_warnings INTERFACE -Wno-maybe-uninitialized)
  if(LEVIN_UNITY)
    # A class with members of an unnamed namespace, all within one .cpp, looks as if it came from a header.
    target_compile_options(levin_warnings INTERFACE -Wno-subobject-linkage)
  endif()
endif()
