# Finds LibTorch and makes levin::torch: libtorch_cpu and libc10 linked directly.
#
# The wheel's own TorchConfig.cmake refuses to configure without a CUDA toolkit and links libtorch_cuda, which adds
# about 1.5 s to the start of every program; separate imported targets avoid both.
#
# LEVIN_TORCH_DIR (cache or environment: a folder with include/ and lib/, or one with torch/include, such as site-packages)
# names it. Otherwise the search order is: CMAKE_PREFIX_PATH, the LibTorch that an installed Levin was built against
# (LEVIN_TORCH_BUILT_WITH, set by levinConfig.cmake), the folders that `./dev setup --system` and `./dev setup` fill,
# Debian's libtorch-dev.
#
# What was found is cached until another folder is named or the folder has gone: a later run of CMake may lack the
# environment variable.
include_guard(GLOBAL)

set(LEVIN_TORCH_DIR "" CACHE PATH "LibTorch: a folder with include/ and lib/, or with torch/include and torch/lib")

if(DEFINED ENV{LEVIN_HOME})
  set(_levin_homes "$ENV{LEVIN_HOME}")
elseif(DEFINED ENV{XDG_CACHE_HOME})
  set(_levin_homes "$ENV{XDG_CACHE_HOME}/levin")
else()
  set(_levin_homes "$ENV{HOME}/.cache/levin")
endif()
set(_levin_home "${_levin_homes}")  # where ./dev installs what tests need
if(NOT DEFINED ENV{LEVIN_HOME})
  if(DEFINED ENV{LEVIN_SYSTEM_HOME})
    list(PREPEND _levin_homes "$ENV{LEVIN_SYSTEM_HOME}")
  else()
    list(PREPEND _levin_homes "/usr/local/lib/levin")
  endif()
endif()

# The version is pinned only in the list of wheels that ./dev setup downloads.
file(STRINGS "${CMAKE_CURRENT_LIST_DIR}/libtorch-cpu.txt" _levin_torch_pinned REGEX "^torch==")
string(REGEX REPLACE "^torch==([0-9.]+) .*" "\\1" _levin_torch_pinned "${_levin_torch_pinned}")

set(_levin_torch_places "")
foreach(kind cuda cpu)
  foreach(home IN LISTS _levin_homes)
    list(APPEND _levin_torch_places "${home}/libtorch-${_levin_torch_pinned}-${kind}")
  endforeach()
endforeach()

set(_levin_torch_oldest 2.6)
set(_levin_torch_newest 2.15)

macro(levin_forget_torch)
  foreach(name LEVIN_TORCH_INCLUDE LEVIN_CUDA_INCLUDE LEVIN_NCCL_INCLUDE)
    unset(${name} CACHE)
  endforeach()
endmacro()
# With a refused LibTorch, the next run of CMake searches again.
macro(levin_refuse_torch)
  levin_forget_torch()
  message(FATAL_ERROR ${ARGN})
endmacro()

set(_levin_torch_named "${LEVIN_TORCH_DIR}")
if(NOT _levin_torch_named)
  set(_levin_torch_named "$ENV{LEVIN_TORCH_DIR}")
endif()
set(_levin_torch_wanted "${LEVIN_TORCH_DIR}|${LEVIN_TORCH_BUILT_WITH}")
if(DEFINED LEVIN_TORCH_LAST_WANTED AND (NOT _levin_torch_wanted STREQUAL LEVIN_TORCH_LAST_WANTED
    OR (_levin_torch_named AND NOT _levin_torch_named STREQUAL LEVIN_TORCH_LAST_NAMED) OR NOT EXISTS "${LEVIN_TORCH_INCLUDE}"))
  levin_forget_torch()
endif()
set(LEVIN_TORCH_LAST_WANTED "${_levin_torch_wanted}" CACHE INTERNAL "What the last search for LibTorch was given")
if(_levin_torch_named)
  set(LEVIN_TORCH_LAST_NAMED "${_levin_torch_named}" CACHE INTERNAL "The last LEVIN_TORCH_DIR, of the cache or the environment")
endif()

set(_levin_torch_suffixes include/torch/csrc/api/include torch/include/torch/csrc/api/include)
if(_levin_torch_named)
  find_path(LEVIN_TORCH_INCLUDE torch/torch.h PATHS "${_levin_torch_named}" PATH_SUFFIXES ${_levin_torch_suffixes}
    NO_DEFAULT_PATH NO_CMAKE_FIND_ROOT_PATH)
  if(NOT LEVIN_TORCH_INCLUDE)
    list(TRANSFORM _levin_torch_suffixes APPEND /torch/torch.h)
    list(JOIN _levin_torch_suffixes " nor " _levin_torch_suffixes)
    levin_refuse_torch("LEVIN_TORCH_DIR is ${_levin_torch_named}, which holds neither ${_levin_torch_suffixes}. Set it to a "
      "folder with include/ and lib/ of LibTorch ${_levin_torch_oldest} to ${_levin_torch_newest}, or to the site-packages "
      "folder that has torch, or to nothing (-DLEVIN_TORCH_DIR=) to search in the usual places.")
  endif()
endif()
find_path(LEVIN_TORCH_INCLUDE torch/torch.h PATHS "${LEVIN_TORCH_BUILT_WITH}" ${_levin_torch_places}
  PATH_SUFFIXES ${_levin_torch_suffixes}
  NO_SYSTEM_ENVIRONMENT_PATH NO_CMAKE_SYSTEM_PATH)
find_path(LEVIN_TORCH_INCLUDE torch/torch.h PATHS /usr/include/torch/csrc/api/include NO_DEFAULT_PATH)  # libtorch-dev
if(NOT LEVIN_TORCH_INCLUDE)
  message(FATAL_ERROR "LibTorch was not found. Run ./dev setup, or pass -DLEVIN_TORCH_DIR=FOLDER where FOLDER contains "
    "include/ and lib/ of LibTorch ${_levin_torch_oldest} to ${_levin_torch_newest} (or of the torch wheel: its "
    "site-packages folder), or install Debian's libtorch-dev.")
endif()
string(REGEX REPLACE "/include/torch/csrc/api/include$" "" LEVIN_TORCH_ROOT "${LEVIN_TORCH_INCLUDE}")
set(_levin_torch_libs "${LEVIN_TORCH_ROOT}/lib" "${LEVIN_TORCH_ROOT}/lib/${CMAKE_LIBRARY_ARCHITECTURE}")  # the latter: Debian
find_library(_levin_torch_cpu torch_cpu PATHS ${_levin_torch_libs} NO_CACHE NO_DEFAULT_PATH NO_CMAKE_FIND_ROOT_PATH)
find_library(_levin_c10 c10 PATHS ${_levin_torch_libs} NO_CACHE NO_DEFAULT_PATH NO_CMAKE_FIND_ROOT_PATH)
if(NOT _levin_torch_cpu OR NOT _levin_c10)
  levin_refuse_torch("LibTorch in ${LEVIN_TORCH_ROOT} has headers, but libtorch_cpu.so or libc10.so is missing in its folder "
    "lib/. Set LEVIN_TORCH_DIR to the folder of a complete one.")
endif()
get_filename_component(LEVIN_TORCH_LIB "${_levin_torch_cpu}" DIRECTORY)

# Levin uses parts of LibTorch without a stable interface (libtorch/): an old version is reported here, instead of by the
# compiler.
file(GLOB_RECURSE _levin_torch_version_headers "${LEVIN_TORCH_INCLUDE}/torch/version.h"
  "${LEVIN_TORCH_ROOT}/include/torch/headeronly/version.h")
set(LEVIN_TORCH_VERSION "")
foreach(header IN LISTS _levin_torch_version_headers)
  file(STRINGS "${header}" _levin_torch_version_lines REGEX "define TORCH_VERSION_(MAJOR|MINOR) [0-9]+")
  if(_levin_torch_version_lines)
    string(REGEX REPLACE "[^0-9;]" "" LEVIN_TORCH_VERSION "${_levin_torch_version_lines}")
    list(JOIN LEVIN_TORCH_VERSION "." LEVIN_TORCH_VERSION)
  endif()
endforeach()
if(LEVIN_TORCH_VERSION AND LEVIN_TORCH_VERSION VERSION_LESS _levin_torch_oldest)
  levin_refuse_torch("LibTorch in ${LEVIN_TORCH_ROOT} is ${LEVIN_TORCH_VERSION}, and Levin needs ${_levin_torch_oldest} or "
    "newer. Pass -DLEVIN_TORCH_DIR=FOLDER of a newer one, or run ./dev setup and pass -DLEVIN_TORCH_DIR= without a folder.")
elseif(LEVIN_TORCH_VERSION VERSION_GREATER _levin_torch_newest)
  message(WARNING "LibTorch in ${LEVIN_TORCH_ROOT} is ${LEVIN_TORCH_VERSION}, and Levin was tested with "
    "${_levin_torch_oldest} to ${_levin_torch_newest} only. If it does not compile, run ./dev setup and pass "
    "-DLEVIN_TORCH_DIR= without a folder.")
endif()

# PyPI's wheels before 2.7 use the std::string of the ABI before GCC 5, so code that is compiled today does not link with them.
# The constructor of c10::Error takes such a string.
file(STRINGS "${_levin_c10}" _levin_torch_old_abi REGEX "_ZN3c105ErrorC[12]ENS_14SourceLocationESs" LIMIT_COUNT 1)
if(_levin_torch_old_abi)
  levin_refuse_torch("LibTorch ${LEVIN_TORCH_VERSION} in ${LEVIN_TORCH_ROOT} has the C++ ABI from before GCC 5 "
    "(_GLIBCXX_USE_CXX11_ABI=0), as PyPI's wheels before 2.7 do: use a wheel of 2.7 or newer, Debian's libtorch-dev, or "
    "the zip named libtorch-cxx11-abi.")
endif()

# GLOBAL: a project that includes Levin by add_subdirectory also links through these names.
add_library(levin::c10 SHARED IMPORTED GLOBAL)
set_target_properties(levin::c10 PROPERTIES IMPORTED_LOCATION "${_levin_c10}")
add_library(levin::torch_cpu SHARED IMPORTED GLOBAL)
set_target_properties(levin::torch_cpu PROPERTIES IMPORTED_LOCATION "${_levin_torch_cpu}")

add_library(levin::torch INTERFACE IMPORTED GLOBAL)
if(NOT LEVIN_TORCH_ROOT STREQUAL "/usr")  # whose folder the compiler searches last
  target_include_directories(levin::torch SYSTEM INTERFACE "${LEVIN_TORCH_ROOT}/include")
endif()
target_include_directories(levin::torch SYSTEM INTERFACE "${LEVIN_TORCH_INCLUDE}")
# The wheel's libraries find the CUDA runtime and CUPTI in the adjacent folders at load time, but a linker does not.
target_link_options(levin::torch INTERFACE LINKER:--allow-shlib-undefined)
target_link_libraries(levin::torch INTERFACE levin::torch_cpu levin::c10)
# clang 18 and newer mangle at::TensorBase::const_data_ptr<T> differently from GCC, which compiles LibTorch's binaries.
set(LEVIN_TORCH_ABI_FLAG "")
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 18)
  set(LEVIN_TORCH_ABI_FLAG -fclang-abi-compat=17)
  target_compile_options(levin::torch INTERFACE ${LEVIN_TORCH_ABI_FLAG})
endif()
message(STATUS "LibTorch ${LEVIN_TORCH_VERSION}: ${LEVIN_TORCH_ROOT}")

# levin::torch_cuda, only for Levin's CUDA component: LibTorch's CUDA libraries and the headers of CUDA and NCCL, from the
# wheels that the torch wheel requires or from a toolkit (CUDA_HOME, /usr/local/cuda).
find_library(_levin_torch_cuda torch_cuda PATHS "${LEVIN_TORCH_LIB}" NO_CACHE NO_DEFAULT_PATH)
find_library(_levin_c10_cuda c10_cuda PATHS "${LEVIN_TORCH_LIB}" NO_CACHE NO_DEFAULT_PATH)
find_path(LEVIN_CUDA_INCLUDE cuda_runtime_api.h
  HINTS "${LEVIN_TORCH_ROOT}/../nvidia/cu13/include" PATHS "$ENV{CUDA_HOME}/include" /usr/local/cuda/include)
find_path(LEVIN_NCCL_INCLUDE nccl.h
  HINTS "${LEVIN_TORCH_ROOT}/../nvidia/nccl/include" PATHS "$ENV{CUDA_HOME}/include" /usr/local/cuda/include)
mark_as_advanced(LEVIN_CUDA_INCLUDE LEVIN_NCCL_INCLUDE)
if(NOT _levin_torch_cuda OR NOT _levin_c10_cuda)
  message(STATUS "CUDA component: no, this LibTorch has no CUDA (./dev setup --cuda installs one with CUDA)")
elseif(NOT LEVIN_CUDA_INCLUDE OR NOT LEVIN_NCCL_INCLUDE)
  message(STATUS "CUDA component: no, the headers of CUDA or NCCL were not found (CUDA_HOME)")
else()
  add_library(levin::torch_cuda INTERFACE IMPORTED GLOBAL)
  target_include_directories(levin::torch_cuda SYSTEM INTERFACE "${LEVIN_CUDA_INCLUDE}" "${LEVIN_NCCL_INCLUDE}")
  target_link_libraries(levin::torch_cuda INTERFACE levin::torch "${_levin_torch_cuda}" "${_levin_c10_cuda}")
  message(STATUS "CUDA component: yes, with ${LEVIN_CUDA_INCLUDE}")
endif()
