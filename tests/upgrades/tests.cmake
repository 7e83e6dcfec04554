# Files of released versions, which the present version reads: make_fixtures.py has made each folder with its version.
if(NOT LEVIN_BUILD_TOOL OR NOT LEVIN_BUILD_EXAMPLES)
  return()
endif()
file(GLOB upgrades_versions CONFIGURE_DEPENDS RELATIVE "${CMAKE_CURRENT_LIST_DIR}" "${CMAKE_CURRENT_LIST_DIR}/*/expected.json")
foreach(version IN LISTS upgrades_versions ITEMS present)
  string(REPLACE "/expected.json" "" version "${version}")
  add_test(NAME upgrades.${version} COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/upgrades_test.py"
    $<TARGET_FILE:levin_tool> ${version})
  set_tests_properties(upgrades.${version} PROPERTIES LABELS examples TIMEOUT 600 COST 30)
endforeach()
