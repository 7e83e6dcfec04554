# levin_module_sources(FILE…): adds files of the current folder to the library that include torch/nn/module.h or
# LibTorch's optimizers (17 s and 0.9 GB a file). They are compiled apart, with that header precompiled once for all.
function(levin_object_library name)
  add_library(${name} OBJECT ${ARGN})
  target_compile_features(${name} PRIVATE cxx_std_20)
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_include_directories(${name} PRIVATE "${PROJECT_BINARY_DIR}/include")
  target_link_libraries(${name} PRIVATE levin::torch levin_warnings)
endfunction()

levin_object_library(levin_module_pch "${CMAKE_CURRENT_LIST_DIR}/module_pch.cpp")
target_precompile_headers(levin_module_pch PRIVATE "${CMAKE_CURRENT_LIST_DIR}/module_pch.h")

function(levin_module_sources)
  get_filename_component(folder "${CMAKE_CURRENT_SOURCE_DIR}" NAME)
  levin_object_library(levin_${folder} ${ARGN})
  target_precompile_headers(levin_${folder} REUSE_FROM levin_module_pch)
  target_sources(levin PRIVATE $<TARGET_OBJECTS:levin_${folder}>)
endfunction()
