# Levin as its users get it: installed, and taken in with its sources.
foreach(kind installed pkgconfig subdirectory)
  if(kind MATCHES "installed|pkgconfig" AND (NOT LEVIN_INSTALL OR LEVIN_SANITIZE))
    continue()  # a program without the sanitizer cannot load a library with it
  endif()
  add_test(NAME consumer.${kind} COMMAND "${CMAKE_COMMAND}" -D KIND=${kind} -D "SOURCES=${PROJECT_SOURCE_DIR}"
    -D "BUILD=${PROJECT_BINARY_DIR}" -D "SCRATCH=${CMAKE_CURRENT_BINARY_DIR}/consumer-${kind}"
    -D "COMPILER=${CMAKE_CXX_COMPILER}" -D "BUILD_TYPE=${CMAKE_BUILD_TYPE}" -D "PARTS=${LEVIN_PARTS}"
    -D CUDA=$<TARGET_EXISTS:levin_cuda>
    -P "${CMAKE_CURRENT_LIST_DIR}/run_consumer.cmake")
  set_tests_properties(consumer.${kind} PROPERTIES LABELS consumer TIMEOUT 600 COST 40)
endforeach()

# An install by root, used by a different user. The sanitizers' libraries would have to be open to all, too.
if(LEVIN_INSTALL AND LEVIN_BUILD_TOOL AND NOT LEVIN_SANITIZE)
  add_test(NAME consumer.other_user COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/other_user_test.py"
    "${CMAKE_COMMAND}" "${PROJECT_BINARY_DIR}" "${LEVIN_TORCH_ROOT}")
  set_tests_properties(consumer.other_user PROPERTIES LABELS consumer TIMEOUT 300 SKIP_RETURN_CODE 77)
endif()

# A project of `levin new`, built and tested with an installed Levin.
if(LEVIN_INSTALL AND LEVIN_BUILD_TOOL AND NOT LEVIN_SANITIZE)
  add_test(NAME consumer.new_project COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/new_project_test.py"
    "${PROJECT_BINARY_DIR}" "${CMAKE_COMMAND}" "${CMAKE_CXX_COMPILER}")
  set_tests_properties(consumer.new_project PROPERTIES LABELS consumer TIMEOUT 900 COST 100)
endif()

# As an archive and as a wheel, which run with a LibTorch of the user's.
if(LEVIN_INSTALL AND LEVIN_BUILD_TOOL AND LEVIN_BUILD_EXAMPLES AND NOT LEVIN_SANITIZE)
  foreach(kind bundle wheel)
    add_test(NAME consumer.${kind} COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/${kind}_test.py"
      "${PROJECT_SOURCE_DIR}" "${PROJECT_BINARY_DIR}" "${LEVIN_TORCH_ROOT}" "${_levin_home}/peers-${_levin_torch_pinned}")
    set_tests_properties(consumer.${kind} PROPERTIES LABELS consumer TIMEOUT 300 SKIP_RETURN_CODE 77 COST 40)
  endforeach()
endif()

# As Debian packages, in a bare Debian; and as the container of packaging/Dockerfile, whose steps build the tool: this
# build's compilations, from ccache.
if(LEVIN_INSTALL AND LEVIN_BUILD_TOOL AND LEVIN_BUILD_EXAMPLES AND NOT LEVIN_SANITIZE)
  foreach(kind packages dockerfile)
    add_test(NAME consumer.${kind} COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/${kind}_test.py"
      "${PROJECT_SOURCE_DIR}" "${PROJECT_BINARY_DIR}" "${LEVIN_TORCH_ROOT}")
    set_tests_properties(consumer.${kind} PROPERTIES LABELS consumer TIMEOUT 7200 SKIP_RETURN_CODE 77 COST 200)
  endforeach()
  set_property(TEST consumer.packages APPEND PROPERTY LABELS nightly)
endif()

# levin_core with the newest LibTorch and with Debian 13's; each builds it, with all cores, for 3 and 6 minutes on two.
if(NOT LEVIN_SANITIZE AND _levin_torch_pinned MATCHES "^${LEVIN_TORCH_VERSION}\\.")
  file(GLOB versions RELATIVE "${PROJECT_SOURCE_DIR}/cmake/libtorch" CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/cmake/libtorch/*.txt")
  list(TRANSFORM versions REPLACE "\\.txt$" "")
  list(SORT versions COMPARE NATURAL)
  list(POP_BACK versions)  # the newest
  foreach(kind newest debian13 ${versions} compilers arm64)
    add_test(NAME consumer.torch_${kind} COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/other_torch_test.py"
      "${PROJECT_SOURCE_DIR}" "${PROJECT_BINARY_DIR}" "${_levin_home}" ${kind})
    set_tests_properties(consumer.torch_${kind} PROPERTIES LABELS consumer TIMEOUT 3600 SKIP_RETURN_CODE 77 COST 400
      PROCESSORS 2 RESOURCE_LOCK other_torch)
  endforeach()
  foreach(kind newest ${versions} compilers arm64)
    set_property(TEST consumer.torch_${kind} APPEND PROPERTY LABELS nightly)
  endforeach()
endif()

# Levin without each of its parts: this build's compilations, from ccache.
if(NOT LEVIN_SANITIZE)
  add_test(NAME consumer.parts_off COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/parts_off_test.py"
    "${PROJECT_SOURCE_DIR}" "${PROJECT_BINARY_DIR}" "${CMAKE_COMMAND}")
  set_tests_properties(consumer.parts_off PROPERTIES LABELS consumer TIMEOUT 3600 COST 60 PROCESSORS 2)
endif()

# Recipes of other package managers.
add_test(NAME consumer.recipes COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/recipes_test.py" "${PROJECT_SOURCE_DIR}"
  "${CMAKE_COMMAND}")
set_tests_properties(consumer.recipes PROPERTIES LABELS consumer TIMEOUT 120)

# A program of levin::core alone.
add_executable(parts_program "${CMAKE_CURRENT_LIST_DIR}/parts_program.cpp")
target_link_libraries(parts_program PRIVATE levin::core levin_warnings)
target_compile_options(parts_program PRIVATE $<$<CONFIG:Release>:-O0>)
target_link_options(parts_program PRIVATE LINKER:--enable-new-dtags)  # LD_LIBRARY_PATH comes before the build's folder
if(NOT LEVIN_SANITIZE)
  add_test(NAME consumer.parts COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/parts_test.py"
    $<TARGET_FILE:parts_program> $<TARGET_FILE_DIR:levin_core>)
  set_tests_properties(consumer.parts PROPERTIES LABELS consumer TIMEOUT 300)
endif()
