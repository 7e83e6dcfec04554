# mold links Levin in a second where the system's linker takes ten; ccache makes a rebuilt tree cheap.
# gcc 12 supports -fuse-ld=mold; both tools are used only if they are installed.
find_program(LEVIN_MOLD mold)
if(LEVIN_MOLD)
  add_link_options(-fuse-ld=mold)
endif()
find_program(LEVIN_CCACHE ccache)
if(LEVIN_CCACHE)
  add_compile_options(-fpch-preprocess)  # lets ccache see through precompiled headers
endif()
if(LEVIN_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # With precompiled headers, cache hits require this sloppiness; the base folder lets clones share the cache.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
    CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
    CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} "${CMAKE_CURRENT_LIST_DIR}/compile.sh" ${LEVIN_CCACHE})
endif()
