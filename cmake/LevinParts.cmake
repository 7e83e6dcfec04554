# The library's parts, each a shared library liblevin_NAME.so and a target levin::NAME. All but core are options
# (-DLEVIN_IMAGES=OFF, or -DLEVIN_ALL_PARTS=OFF -DLEVIN_IMAGES=ON), each with what it needs of others; liblevin_core.so opens
# a part when a run file names a class of it (core/process/parts.h). levin::levin is all of them. levin_cuda (cuda/) is only
# opened, never linked, and stands in no list here.
#
# A part is one line here and, if it has any, its classes in core/process/parts.cpp and builtins/.
set(LEVIN_PARTS core)
set(LEVIN_PARTS_LEFT_OUT "")
option(LEVIN_ALL_PARTS "The parts whose own option is empty: all of them, or only core" ON)

# levin_part(NAME HOLDS words NEEDS part… PACKAGES package… LINK library…)
#   PACKAGES: CURL for find_package(CURL), oniguruma for pkg-config; hdf5-serial|hdf5: the first that is found.
function(levin_part name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "HOLDS" "NEEDS;PACKAGES;LINK")
  string(TOUPPER "LEVIN_${name}" wanted)
  set(${wanted} "" CACHE STRING "Build levin_${name} (${arg_HOLDS}): ON, OFF, or empty: as LEVIN_ALL_PARTS")
  set(is_wanted "${${wanted}}")
  if(is_wanted STREQUAL "")
    set(is_wanted ${LEVIN_ALL_PARTS})
  endif()
  if(NOT is_wanted)
    set(LEVIN_PARTS_LEFT_OUT ${LEVIN_PARTS_LEFT_OUT} ${name} PARENT_SCOPE)
    return()
  endif()
  foreach(part IN LISTS arg_NEEDS)
    if(NOT TARGET levin_${part})
      string(TOUPPER "LEVIN_${part}" other)
      message(FATAL_ERROR "levin_${name} needs levin_${part}: pass -D${other}=ON, or -D${wanted}=OFF.")
    endif()
  endforeach()
  foreach(package IN LISTS arg_PACKAGES)
    if(package MATCHES "^[A-Z]")
      find_package(${package} QUIET)
      set(is_found ${${package}_FOUND})
    else()
      string(REPLACE "|" ";" names "${package}")
      list(GET names -1 target)
      pkg_search_module(${target} QUIET IMPORTED_TARGET GLOBAL ${names})
      set(is_found ${${target}_FOUND})
    endif()
    if(NOT is_found)
      message(FATAL_ERROR "levin_${name} (${arg_HOLDS}) needs ${package}, which was not found: install its development "
        "package (cmake/debian-packages.txt has Debian's names), or pass -D${wanted}=OFF.")
    endif()
  endforeach()
  set(LEVIN_${name}_HOLDS "${arg_HOLDS}" PARENT_SCOPE)
  set(LEVIN_${name}_NEEDS core ${arg_NEEDS} PARENT_SCOPE)
  list(TRANSFORM arg_NEEDS PREPEND levin_)
  levin_add_part(${name} PUBLIC levin_core ${arg_NEEDS} PRIVATE ${arg_LINK})
  target_precompile_headers(levin_${name} REUSE_FROM levin_core)
  set(LEVIN_PARTS ${LEVIN_PARTS} ${name} PARENT_SCOPE)
endfunction()

# Files that do not work on modules wait for disks, users and LibTorch. GCC compiles them in three quarters of the time with
# those parts of -O2 that such code gains from.
string(REGEX MATCH "-O[23]" optimized "${CMAKE_CXX_FLAGS_RELEASE}")
set(LEVIN_PLAIN_OPTIONS "$<$<AND:$<BOOL:${optimized}>,$<CONFIG:Release>,$<CXX_COMPILER_ID:GNU>>:-O1;-finline-functions;-finline-small-functions;\
-findirect-inlining;-fstrict-aliasing;-ftree-vrp;-fthread-jumps;-foptimize-sibling-calls>")

# levin_add_part(NAME …): the library itself, linked with …
function(levin_add_part name)
  set(target levin_${name})
  add_library(${target} SHARED)
  add_library(levin::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${LEVIN_SOVERSION} UNITY_BUILD_MODE GROUP
    EXPORT_NAME ${name} DEFINE_SYMBOL "" BUILD_RPATH "${LEVIN_TORCH_LIB}")
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_include_directories(${target} PUBLIC
    "$<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include>" "$<INSTALL_INTERFACE:include>")
  target_link_libraries(${target} ${ARGN} PRIVATE levin_warnings)
  target_compile_options(${target} PRIVATE ${LEVIN_PLAIN_OPTIONS})
  # LibTorch keeps what the library has registered with it, so a dlclose() of the last user must not unload the library.
  target_link_options(${target} PRIVATE LINKER:-z,nodelete)
endfunction()

set(LEVIN_core_HOLDS "the trainer, its callbacks, and checkpoints")
levin_add_part(core PUBLIC levin::torch nlohmann_json::nlohmann_json Threads::Threads
  PRIVATE yaml-cpp PkgConfig::xxhash ${CMAKE_DL_LIBS})
target_precompile_headers(levin_core PRIVATE cmake/library_pch.h)

levin_part(arrays HOLDS "data from HDF5 and NumPy files"
  PACKAGES hdf5-serial|hdf5
  LINK PkgConfig::hdf5)
levin_part(images HOLDS "data from folders of images, and images for TensorBoard"
  PACKAGES PNG JPEG libwebp libwebpdemux
  LINK PNG::PNG JPEG::JPEG PkgConfig::libwebp PkgConfig::libwebpdemux)
levin_part(text HOLDS "tokenizers, data from text, and metrics of text"
  PACKAGES oniguruma libutf8proc OpenSSL ZLIB
  LINK PkgConfig::oniguruma PkgConfig::libutf8proc OpenSSL::Crypto ZLIB::ZLIB)
levin_part(downloads HOLDS "MNIST and other data that is downloaded"
  PACKAGES CURL OpenSSL ZLIB
  LINK CURL::libcurl OpenSSL::Crypto ZLIB::ZLIB PkgConfig::xxhash)
levin_part(streams HOLDS "data in shards, from folders, web servers and S3"
  NEEDS images downloads
  PACKAGES libzstd ZLIB
  LINK PkgConfig::libzstd ZLIB::ZLIB)
levin_part(models HOLDS "models of Hugging Face, torch.export, AOTInductor and ONNX, LoRA, and inference"
  NEEDS text
  PACKAGES libpcre2-8 ZLIB
  LINK PkgConfig::libpcre2-8 ZLIB::ZLIB)
levin_part(tracking HOLDS "loggers for MLflow, SQLite and Prometheus"
  NEEDS downloads
  PACKAGES SQLite3
  LINK SQLite::SQLite3)
levin_part(tools HOLDS "the commands of the levin program"
  NEEDS models tracking streams
  PACKAGES ncursesw
  LINK $<LINK_ONLY:PkgConfig::ncursesw>)  # whose definitions would keep the precompiled header out

levin_part(c HOLDS "the interface for C, Fortran and other languages"
  LINK Threads::Threads)

add_library(levin INTERFACE)
add_library(levin::levin ALIAS levin)
foreach(part IN LISTS LEVIN_PARTS)
  target_link_libraries(levin INTERFACE levin_${part})
endforeach()
