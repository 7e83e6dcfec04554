# A port for the checkout that it is in: vcpkg install levin --overlay-ports=packaging/vcpkg
# LibTorch is not a dependency, because Levin needs 2.6 or newer: the environment variable LEVIN_TORCH_DIR names a folder with
# include/ and lib/, or a site-packages with torch (VCPKG_KEEP_ENV_VARS=LEVIN_TORCH_DIR lets the port see it).
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../.." ABSOLUTE)
vcpkg_check_features(OUT_FEATURE_OPTIONS options FEATURES
  arrays LEVIN_ARRAYS
  images LEVIN_IMAGES
  text LEVIN_TEXT
  downloads LEVIN_DOWNLOADS
  models LEVIN_MODELS
  streams LEVIN_STREAMS
  tracking LEVIN_TRACKING
  c LEVIN_C
  tools LEVIN_TOOLS
  tools LEVIN_BUILD_TOOL)
vcpkg_find_acquire_program(PKGCONFIG)
vcpkg_cmake_configure(SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS ${options} -DLEVIN_BUILD_TESTS=OFF -DLEVIN_BUILD_EXAMPLES=OFF -DLEVIN_BUILD_BENCH=OFF "-DLEVIN_TORCH_DIR=$ENV{LEVIN_TORCH_DIR}"
    "-DPKG_CONFIG_EXECUTABLE=${PKGCONFIG}")
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/levin)
vcpkg_fixup_pkgconfig()
if("tools" IN_LIST FEATURES)
  vcpkg_copy_tools(TOOL_NAMES levin AUTO_CLEAN)
endif()
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
