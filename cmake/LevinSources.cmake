# levin_sources(GROUP [PART part] FILE…) adds files of the current folder to a part of the library (LevinParts.cmake), core if
# none is named; without that part they are left out.
#
# levin_module_sources(GROUP [PART part] FILE…) does the same for files that include torch/nn/module.h, LibTorch's optimizers
# or all of ATen's functions (ATen/TensorOperators.h, torch/csrc): they are compiled with those precompiled, once for all.
# Compiled with the smaller header, such a file takes 8 s more.
#
# LEVIN_UNITY sets how many files are compiled as one unit. Names in unnamed namespaces must be unique within a unit.
#   ON       about 8,000 lines, for which the compiler needs 2.5 GB: the templates of LibTorch and of the standard library
#            that these files share are instantiated once
#   FOLDERS  a group of a folder: for work on the library, because an edit compiles fewer lines
#   OFF      one file
function(levin_object_library name)
  add_library(${name} OBJECT ${ARGN})
  target_compile_features(${name} PRIVATE cxx_std_20)
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON UNITY_BUILD_MODE GROUP)
  target_include_directories(${name} PRIVATE "${PROJECT_BINARY_DIR}/include")
  target_link_libraries(${name} PRIVATE levin::torch levin_warnings)
endfunction()

levin_object_library(levin_module_pch "${CMAKE_CURRENT_LIST_DIR}/module_pch.cpp")
target_precompile_headers(levin_module_pch PRIVATE "${CMAKE_CURRENT_LIST_DIR}/module_pch.h")

# levin_unit(RESULT PART GROUP): the unit of a group, FOLDER_NAME.
function(levin_unit result part group)
  set(unit ${part})
  if(NOT LEVIN_UNITY STREQUAL "ON")
    set(unit ${group})
  elseif(group MATCHES "^models_(onnx|exported)")
    set(unit graphs)
  elseif(NOT part STREQUAL "core")
    # one unit for the part
  elseif(group MATCHES "^(core|yaml|loggers|profilers)_")
    set(unit base)
  elseif(group MATCHES "^(data|checkpoint|builtins)_|^strategies_strategies$|^callbacks_checkpoints$")
    set(unit files)
  elseif(group MATCHES "^(optim|metrics|precision|callbacks)_")
    set(unit math)
  elseif(group MATCHES "^(strategies|libtorch)_")
    set(unit ranks)
  elseif(group MATCHES "^cli_")
    set(unit config)
  elseif(group MATCHES "^trainer_step$|^recompute_")
    set(unit step)
  elseif(group MATCHES "^trainer_")
    set(unit training)
  endif()
  set(${result} ${unit} PARENT_SCOPE)
endfunction()

function(levin_add_group target part group)
  levin_unit(unit ${part} ${group})
  list(TRANSFORM ARGN PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/" OUTPUT_VARIABLE files)
  target_sources(${target} PRIVATE ${files})
  set_source_files_properties(${files} TARGET_DIRECTORY ${target} PROPERTIES UNITY_GROUP ${unit})
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
  levin_add_group(levin_${part} ${part} ${folder}_${group} ${files})
endfunction()

function(levin_module_sources group)
  levin_read_sources(${ARGN})
  set(target levin_${part}_modules)
  if(NOT TARGET ${target})
    levin_object_library(${target})
    target_precompile_headers(${target} REUSE_FROM levin_module_pch)
    target_sources(levin_${part} PRIVATE $<TARGET_OBJECTS:${target}>)
  endif()
  levin_add_group(${target} ${part} ${folder}_${group} ${files})
endfunction()
