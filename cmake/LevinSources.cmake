# levin_sources(GROUP [PART part] FILE…) adds files of the current folder to a part of the library (LevinParts.cmake), core if
# none is named; without that part they are left out. Those of a group are compiled as one unit (LEVIN_UNITY), so names in
# unnamed namespaces must be unique within a group; adding a file changes no other group.
#
# levin_module_sources(GROUP [PART part] FILE…) does the same for files that include torch/nn/module.h or LibTorch's optimizers
# (17 s and 0.9 GB per file): they are compiled separately, with that header precompiled once for all.
function(levin_object_library name)
  add_library(${name} OBJECT ${ARGN})
  target_compile_features(${name} PRIVATE cxx_std_20)
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON UNITY_BUILD_MODE GROUP)
  target_include_directories(${name} PRIVATE "${PROJECT_BINARY_DIR}/include")
  target_link_libraries(${name} PRIVATE levin::torch levin_warnings)
endfunction()

levin_object_library(levin_module_pch "${CMAKE_CURRENT_LIST_DIR}/module_pch.cpp")
target_precompile_headers(levin_module_pch PRIVATE "${CMAKE_CURRENT_LIST_DIR}/module_pch.h")

function(levin_add_group target group)
  list(TRANSFORM ARGN PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/" OUTPUT_VARIABLE files)
  target_sources(${target} PRIVATE ${files})
  set_source_files_properties(${files} TARGET_DIRECTORY ${target} PROPERTIES UNITY_GROUP ${group})
endfunction()

# Sets `part`, `folder` and `files` from the arguments of the two functions below, and returns without the part.
macro(levin_read_sources)
  cmake_parse_arguments(arg "" "PART" "" ${ARGN})
  set(part core)
  if(arg_PART)
    set(part ${arg_PART})
  endif()
  if(NOT TARGET levin_${part})
    return()
  endif()
  get_filename_component(folder "${CMAKE_CURRENT_SOURCE_DIR}" NAME)
  set(files ${arg_UNPARSED_ARGUMENTS})
endmacro()

function(levin_sources group)
  levin_read_sources(${ARGN})
  levin_add_group(levin_${part} ${folder}_${group} ${files})
endfunction()

function(levin_module_sources group)
  levin_read_sources(${ARGN})
  set(target levin_${folder}_${part}_modules)
  if(NOT TARGET ${target})
    levin_object_library(${target})
    target_precompile_headers(${target} REUSE_FROM levin_module_pch)
    target_sources(levin_${part} PRIVATE $<TARGET_OBJECTS:${target}>)
  endif()
  levin_add_group(${target} ${group} ${files})
endfunction()
