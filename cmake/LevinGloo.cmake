# Target levin_gloo: the headers of Gloo, which LibTorch's own headers for it include. The library is in LibTorch, but the
# wheels do not have these headers. Programs with an installed Levin do not need them.
find_path(LEVIN_GLOO_INCLUDE gloo/algorithm.h PATHS "${LEVIN_TORCH_ROOT}/include" NO_CACHE NO_DEFAULT_PATH NO_CMAKE_FIND_ROOT_PATH)
find_path(LEVIN_GLOO_INCLUDE gloo/algorithm.h NO_CACHE)
if(NOT LEVIN_GLOO_INCLUDE)
  message(FATAL_ERROR "levin_core needs the headers of Gloo (gloo/algorithm.h), which LibTorch in ${LEVIN_TORCH_ROOT} does not "
    "have: install Debian's libgloo-dev, or pass -DLEVIN_GLOO_INCLUDE=FOLDER, which holds gloo/.")
endif()
add_library(levin_gloo INTERFACE IMPORTED)
set_target_properties(levin_gloo PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${LEVIN_GLOO_INCLUDE}")
