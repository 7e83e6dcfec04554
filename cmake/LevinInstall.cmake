# `cmake --install build/release --prefix WHERE`: the libraries, the tool, the headers and the package config, so that
# another project can call find_package(levin COMPONENTS core …) and link levin::core, or all parts as levin::levin. Each part is
# an install component of its own (cmake --install … --component levin_images).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(_levin_package "${CMAKE_INSTALL_LIBDIR}/cmake/levin")
foreach(part IN LISTS LEVIN_PARTS)
  # CMake removes the build's rpath on install, but the libraries must still find each other and LibTorch.
  set_target_properties(levin_${part} PROPERTIES INSTALL_RPATH "$ORIGIN;${LEVIN_TORCH_LIB}")
  install(TARGETS levin_${part} EXPORT levin_${part}
    LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT levin_${part} NAMELINK_COMPONENT levin_dev)
  install(EXPORT levin_${part} NAMESPACE levin:: FILE levin_${part}.cmake DESTINATION "${_levin_package}" COMPONENT levin_dev)
endforeach()
# Opened by the libraries, which look for them in their own folder.
if(TARGET levin_text)
  install(TARGETS levin_sentencepiece LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT levin_text)
endif()
if(TARGET levin_arrow)
  install(TARGETS levin_arrow LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT levin_arrow)
endif()
if(TARGET levin_cuda)
  install(TARGETS levin_cuda LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT levin_cuda)
endif()
if(TARGET levin_tool)
  set_target_properties(levin_tool PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
  set_target_properties(levin_tool_library PROPERTIES INSTALL_RPATH "$ORIGIN;${LEVIN_TORCH_LIB}")
  install(TARGETS levin_tool RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT levin_tools)
  install(TARGETS levin_tool_library LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT levin_tools)
  # For models and weights of Python.
  set(_levin_scripts export_model.py compile_step.py convert_checkpoint.py step_graphs.py output_path.py)
  list(TRANSFORM _levin_scripts PREPEND "${PROJECT_SOURCE_DIR}/tools/")
  install(PROGRAMS ${_levin_scripts} DESTINATION "${CMAKE_INSTALL_DATADIR}/levin/tools" COMPONENT levin_tools)
endif()

foreach(folder IN LISTS LEVIN_FOLDERS)
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/${folder}/" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/levin/${folder}"
    COMPONENT levin_dev FILES_MATCHING PATTERN "*.h" PATTERN "*_pch.h" EXCLUDE)
endforeach()
if(TARGET levin_c)
  install(FILES "${PROJECT_SOURCE_DIR}/c/levin.f90" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/levin/c" COMPONENT levin_dev)
endif()
install(FILES "${PROJECT_SOURCE_DIR}/levin.h" "${PROJECT_SOURCE_DIR}/train.h" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/levin" COMPONENT levin_dev)

# levin-core.pc, levin-images.pc, …
if(NOT LEVIN_TORCH_ROOT STREQUAL "/usr")
  set(_levin_torch_flags "-L\${torchdir}/lib -Wl,-rpath,\${torchdir}/lib ")
  set(_levin_torch_include "-isystem \${torchdir}/include ")
endif()
file(RELATIVE_PATH _levin_up "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")  # ../../
foreach(part IN LISTS LEVIN_PARTS)
  list(TRANSFORM LEVIN_${part}_NEEDS REPLACE "(.+)" "levin-\\1 = ${PROJECT_VERSION}" OUTPUT_VARIABLE _levin_requires)
  list(JOIN _levin_requires ", " _levin_requires)
  set(_levin_holds "${LEVIN_${part}_HOLDS}")
  set(_levin_cflags "")
  set(_levin_libs "")
  if(part STREQUAL "core")
    set(_levin_requires "nlohmann_json")
    set(_levin_cflags "-std=c++20 -I\${includedir} ${_levin_torch_include}-isystem \${torchdir}/include/torch/csrc/api/include")
    string(APPEND _levin_cflags " ${LEVIN_TORCH_ABI_FLAG}")
    set(_levin_libs " ${_levin_torch_flags}-ltorch_cpu -lc10 -pthread -Wl,--allow-shlib-undefined")  # as levin::torch
  endif()
  if(part STREQUAL "c")  # core's flags are C++'s
    set(_levin_requires "")
    set(_levin_cflags "-I\${includedir}")
    set(_levin_libs " -Wl,--allow-shlib-undefined")
  endif()
  configure_file("${PROJECT_SOURCE_DIR}/cmake/levin.pc.in" "${PROJECT_BINARY_DIR}/pkgconfig/levin-${part}.pc" @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/pkgconfig/levin-${part}.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig"
    COMPONENT levin_dev)
endforeach()

# An install for all users does not work if LibTorch is in a private folder, such as root's cache.
set(_levin_torch_remedy "./dev setup --system")
if(TARGET levin::torch_cuda)
  set(_levin_torch_remedy "./dev setup --cuda --system")
endif()
install(CODE "set(torch [==[${LEVIN_TORCH_LIB}]==])\nset(remedy [==[${_levin_torch_remedy}]==])" COMPONENT levin_core)
install(SCRIPT "${CMAKE_CURRENT_LIST_DIR}/warn_of_private_torch.cmake" COMPONENT levin_core)

# The build folder is a package too: find_package(levin) finds the parts that are built there.
set(_levin_built "${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/cmake/levin")
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/levinConfig.cmake.in"
  "${_levin_built}/levinConfig.cmake" INSTALL_DESTINATION "${_levin_package}")
# Before 1.0 a minor version may have breaking changes: 0.2 is compatible with 0.2.x only.
write_basic_package_version_file("${_levin_built}/levinConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
foreach(name LevinTorch.cmake libtorch-cpu.txt)
  configure_file("${PROJECT_SOURCE_DIR}/cmake/${name}" "${_levin_built}/${name}" COPYONLY)
endforeach()
foreach(part IN LISTS LEVIN_PARTS)
  export(EXPORT levin_${part} NAMESPACE levin:: FILE "${_levin_built}/levin_${part}.cmake")
endforeach()
foreach(name levinConfig.cmake levinConfigVersion.cmake LevinTorch.cmake libtorch-cpu.txt)
  install(FILES "${_levin_built}/${name}" DESTINATION "${_levin_package}" COMPONENT levin_dev)
endforeach()
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/levin" COMPONENT levin_core)
install(FILES "${PROJECT_SOURCE_DIR}/cmake/libtorch-cpu.txt" DESTINATION "${CMAKE_INSTALL_DATADIR}/levin" COMPONENT levin_core)
