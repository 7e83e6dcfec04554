# Finds LibTorch and makes levin::torch: libtorch_cpu and libc10 linked directly.
#
# The wheel's own TorchConfig.cmake refuses to configure without a CUDA toolkit and links libtorch_cuda, which adds
# about 1.5 s to the start of every program; imported targets of our own avoid both.
#
# Looked for, in this order: LEVIN_TORCH_DIR (cache or environment: a folder with include/ and lib/, or one with
# torch/include as site-packages has), CMAKE_PREFIX_PATH, the folder that `./dev setup` fills.

set(LEVIN_TORCH_DIR "" CACHE PATH "LibTorch: a folder with include/ and lib/, or with torch/include and torch/lib")

if(DEFINED ENV{LEVIN_HOME})
  set(_levin_home "$ENV{LEVIN_HOME}")
elseif(DEFINED ENV{XDG_CACHE_HOME})
  set(_levin_home "$ENV{XDG_CACHE_HOME}/levin")
else()
  set(_levin_home "$ENV{HOME}/.cache/levin")
endif()

find_path(LEVIN_TORCH_INCLUDE torch/torch.h
  HINTS "${LEVIN_TORCH_DIR}" "$ENV{LEVIN_TORCH_DIR}"
  PATHS "${_levin_home}/libtorch-2.11.0-cuda" "${_levin_home}/libtorch-2.11.0-cpu"
  PATH_SUFFIXES include/torch/csrc/api/include torch/include/torch/csrc/api/include
  NO_SYSTEM_ENVIRONMENT_PATH NO_CMAKE_SYSTEM_PATH)
if(NOT LEVIN_TORCH_INCLUDE)
  message(FATAL_ERROR "LibTorch was not found. Run ./dev setup, or pass -DLEVIN_TORCH_DIR=FOLDER where FOLDER holds "
    "include/ and lib/ of LibTorch 2.11 (or of the torch wheel: its site-packages folder).")
endif()
string(REGEX REPLACE "/include/torch/csrc/api/include$" "" LEVIN_TORCH_ROOT "${LEVIN_TORCH_INCLUDE}")
find_library(LEVIN_TORCH_CPU torch_cpu HINTS "${LEVIN_TORCH_ROOT}/lib" NO_DEFAULT_PATH REQUIRED)
find_library(LEVIN_C10 c10 HINTS "${LEVIN_TORCH_ROOT}/lib" NO_DEFAULT_PATH REQUIRED)

add_library(levin_c10 SHARED IMPORTED)
set_target_properties(levin_c10 PROPERTIES IMPORTED_LOCATION "${LEVIN_C10}")
add_library(levin_torch_cpu SHARED IMPORTED)
set_target_properties(levin_torch_cpu PROPERTIES IMPORTED_LOCATION "${LEVIN_TORCH_CPU}")

add_library(levin_torch INTERFACE)
add_library(levin::torch ALIAS levin_torch)
target_include_directories(levin_torch SYSTEM INTERFACE
  "$<BUILD_INTERFACE:${LEVIN_TORCH_ROOT}/include>" "$<BUILD_INTERFACE:${LEVIN_TORCH_INCLUDE}>")
target_link_libraries(levin_torch INTERFACE
  "$<BUILD_INTERFACE:levin_torch_cpu>" "$<BUILD_INTERFACE:levin_c10>")
# The wheel finds the CUDA runtime and CUPTI beside itself, but the linker must see them too.
target_link_options(levin_torch INTERFACE
  "$<BUILD_INTERFACE:LINKER:--allow-shlib-undefined>" "$<BUILD_INTERFACE:LINKER:-rpath,${LEVIN_TORCH_ROOT}/lib>")
message(STATUS "LibTorch: ${LEVIN_TORCH_ROOT}")
