# README and docs/ against the tree; the programs in them are compiled as they stand (see enabled.txt).
set(docs_script "${CMAKE_CURRENT_LIST_DIR}/docs.py")
add_test(NAME docs.tree COMMAND Python3::Interpreter -B "${docs_script}" check "${PROJECT_SOURCE_DIR}")
add_test(NAME docs.finds_what_is_planted COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/docs_test.py")
add_test(NAME docs.figures_finds_what_is_planted COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/figures_test.py")
set_tests_properties(docs.tree docs.finds_what_is_planted docs.figures_finds_what_is_planted
  PROPERTIES LABELS docs TIMEOUT 120)

# The pages of docs/options, compared with what the tool prints.
add_test(NAME docs.reference_finds_what_is_planted COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/reference_test.py")
set_tests_properties(docs.reference_finds_what_is_planted PROPERTIES LABELS docs TIMEOUT 120)
if(LEVIN_BUILD_TOOL AND LEVIN_ALL_PARTS)
  add_test(NAME docs.reference COMMAND Python3::Interpreter -B "${PROJECT_SOURCE_DIR}/docs/site/reference.py" check
    "${PROJECT_BINARY_DIR}/bin/levin")
  set_tests_properties(docs.reference PROPERTIES LABELS docs TIMEOUT 600 COST 60)
endif()

# The pictures of the README, made again.
if(LEVIN_BUILD_EXAMPLES AND LEVIN_BUILD_TOOL)
  add_test(NAME docs.pictures COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/pictures_test.py"
    "${PROJECT_BINARY_DIR}/bin")
  set_tests_properties(docs.pictures PROPERTIES LABELS docs TIMEOUT 300 COST 30)
endif()

# Numbers that pages quote, compared with what the programs print: one test per page.
if(LEVIN_BUILD_EXAMPLES AND LEVIN_BUILD_TOOL)
  set(docs_figures "${CMAKE_CURRENT_LIST_DIR}/figures.py")
  execute_process(COMMAND "${Python3_EXECUTABLE}" -B "${docs_figures}" --source "${PROJECT_SOURCE_DIR}" list
    OUTPUT_VARIABLE docs_pages OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  string(REPLACE "\n" ";" docs_pages "${docs_pages}")
  foreach(page IN LISTS docs_pages)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${page}")
    add_test(NAME docs.figures.${page} COMMAND Python3::Interpreter -B "${docs_figures}"
      --bin "${PROJECT_BINARY_DIR}/bin" --source "${PROJECT_SOURCE_DIR}" ${page})
    # The pages of articles repeat at length what tests of the examples run.
    set_tests_properties(docs.figures.${page} PROPERTIES LABELS docs TIMEOUT 300)
    if(page MATCHES "^docs/articles/")
      set_tests_properties(docs.figures.${page} PROPERTIES LABELS "docs;nightly")
    endif()
  endforeach()
endif()

# The round trip through PyTorch and transformers, as docs/python.md has it. Skipped, with the reason, without them.
if(LEVIN_BUILD_EXAMPLES AND LEVIN_BUILD_TOOL)
  add_test(NAME docs.python_page COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/python_page_test.py"
    "${PROJECT_BINARY_DIR}/bin" "${PROJECT_SOURCE_DIR}")
  set_tests_properties(docs.python_page PROPERTIES LABELS peers TIMEOUT 300 COST 60 SKIP_RETURN_CODE 77)
endif()

# The classes of docs/extending.md, in runs.
set(docs_classes "${CMAKE_CURRENT_BINARY_DIR}/docs_classes")
file(MAKE_DIRECTORY "${docs_classes}")
add_custom_command(OUTPUT "${docs_classes}/docs_extending.h" DEPENDS "${PROJECT_SOURCE_DIR}/docs/extending.md" "${docs_script}"
  COMMAND Python3::Interpreter -B "${docs_script}" classes "${PROJECT_SOURCE_DIR}/docs/extending.md"
    "${docs_classes}/docs_extending.h" VERBATIM)
levin_test(docs_extending TORCH LABEL docs FILES docs/extending_test.cpp)
target_sources(docs_extending_test PRIVATE "${docs_classes}/docs_extending.h")
target_include_directories(docs_extending_test PRIVATE "${docs_classes}")

set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/enabled.txt")
file(STRINGS "${CMAKE_CURRENT_LIST_DIR}/enabled.txt" docs_lines REGEX "^program ")
foreach(line IN LISTS docs_lines)
  separate_arguments(words UNIX_COMMAND "${line}")
  list(GET words 1 page)
  list(APPEND docs_programs "${PROJECT_SOURCE_DIR}/${page}")
  if("run" IN_LIST words)
    add_test(NAME docs.${page} COMMAND Python3::Interpreter -B "${docs_script}" run
      "${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/docs_programs" "${PROJECT_SOURCE_DIR}/${page}")
    set_tests_properties(docs.${page} PROPERTIES LABELS docs TIMEOUT 300)
  endif()
endforeach()
# What a page says about its program after each of its edits.
if(LEVIN_BUILD_TOOL)
  add_test(NAME docs.your_loop COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/your_loop_test.py"
    "${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
  set_tests_properties(docs.your_loop PROPERTIES LABELS docs TIMEOUT 600)
endif()
# The tutorials, followed from the first line to the last.
if(LEVIN_BUILD_TOOL AND TARGET levin_example_models)
  file(GLOB docs_tutorials CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/docs/tutorials/*.md")
  foreach(page IN LISTS docs_tutorials)
    get_filename_component(name "${page}" NAME_WE)
    add_test(NAME docs.tutorials.${name} COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/tutorial.py" run
      "${CMAKE_RUNTIME_OUTPUT_DIRECTORY}" "${page}")
    set_tests_properties(docs.tutorials.${name} PROPERTIES LABELS docs TIMEOUT 300 COST 30 SKIP_RETURN_CODE 77)
  endforeach()
endif()
add_test(NAME docs.tutorial_finds_what_is_planted COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/tutorial_test.py")
set_tests_properties(docs.tutorial_finds_what_is_planted PROPERTIES LABELS docs TIMEOUT 120)
set(docs_source "${CMAKE_CURRENT_BINARY_DIR}/docs_programs.cpp")
add_custom_command(OUTPUT "${docs_source}" DEPENDS ${docs_programs} "${docs_script}"
  COMMAND Python3::Interpreter -B "${docs_script}" programs "${docs_source}" ${docs_programs} VERBATIM)
add_executable(docs_programs "${docs_source}")
pkg_check_modules(httplib REQUIRED IMPORTED_TARGET cpp-httplib)  # of docs/tutorials/deployment.md
target_link_libraries(docs_programs PRIVATE levin::levin PkgConfig::httplib levin_warnings)
if(TARGET levin_example_models)  # its precompiled levin.h, which the programs include first
  levin_share_models_pch(docs_programs)
endif()
