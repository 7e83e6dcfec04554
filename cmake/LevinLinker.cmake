# mold links Levin in a second where the system's linker takes ten; ccache makes a rebuilt tree cheap.
# gcc 12 knows -fuse-ld=mold; both tools are used only where they are installed.
find_program(LEVIN_MOLD mold)
if(LEVIN_MOLD)
  add_link_options(-fuse-ld=mold)
endif()
find_program(LEVIN_CCACHE ccache)
if(LEVIN_CCACHE)
  add_compile_options(-fpch-preprocess)  # lets ccache see through precompiled headers
endif()
if(LEVIN_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Users of precompiled headers need these leave-outs to hit the cache; the base folder lets clones share it.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
    CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
    CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} "${CMAKE_CURRENT_LIST_DIR}/compile.sh" ${LEVIN_CCACHE})
endif()
