# `cmake --install build/release --prefix WHERE`: the library, the tool, the headers and the package config, so that
# another project can call find_package(levin) and link levin::levin.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# CMake removes the build's rpath on install, but both the library and the tool must still find LibTorch.
set_target_properties(levin PROPERTIES INSTALL_RPATH "${LEVIN_TORCH_LIB}")
install(TARGETS levin EXPORT levinTargets LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(TARGETS levin_sentencepiece LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")  # liblevin.so looks for it in its own folder
if(TARGET levin_cuda)
  install(TARGETS levin_cuda LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")  # liblevin.so looks for it in its own folder
endif()
if(TARGET levin_tool)
  set_target_properties(levin_tool PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
  set_target_properties(levin_tool_library PROPERTIES INSTALL_RPATH "$ORIGIN;${LEVIN_TORCH_LIB}")
  install(TARGETS levin_tool RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
  install(TARGETS levin_tool_library LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
endif()

foreach(folder IN LISTS LEVIN_FOLDERS)
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/${folder}/" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/levin/${folder}"
    FILES_MATCHING PATTERN "*.h" PATTERN "*_pch.h" EXCLUDE)
endforeach()
install(FILES "${PROJECT_SOURCE_DIR}/levin.h" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/levin")

# An install for all users does not work if LibTorch is in a private folder, such as root's cache.
set(_levin_torch_remedy "./dev setup --system")
if(TARGET levin::torch_cuda)
  set(_levin_torch_remedy "./dev setup --cuda --system")
endif()
install(CODE "set(torch [==[${LEVIN_TORCH_LIB}]==])\nset(remedy [==[${_levin_torch_remedy}]==])")
install(SCRIPT "${CMAKE_CURRENT_LIST_DIR}/warn_of_private_torch.cmake")

set(_levin_package "${CMAKE_INSTALL_LIBDIR}/cmake/levin")
install(EXPORT levinTargets NAMESPACE levin:: DESTINATION "${_levin_package}")
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/levinConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/levinConfig.cmake" INSTALL_DESTINATION "${_levin_package}")
# Before 1.0 a minor version may have breaking changes: 0.1 is compatible with 0.1.x only.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/levinConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/levinConfig.cmake" "${PROJECT_BINARY_DIR}/levinConfigVersion.cmake"
  "${PROJECT_SOURCE_DIR}/cmake/LevinTorch.cmake" "${PROJECT_SOURCE_DIR}/cmake/libtorch-cpu.txt"
  DESTINATION "${_levin_package}")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/levin")
