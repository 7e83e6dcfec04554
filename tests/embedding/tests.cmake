# Levin in programs that own their process. embedding_test.py describes what each program must do.
add_library(levin_embedding_options INTERFACE)
target_compile_options(levin_embedding_options INTERFACE $<$<CONFIG:Release>:-O0>)
target_include_directories(levin_embedding_options INTERFACE "${CMAKE_CURRENT_SOURCE_DIR}")
target_link_libraries(levin_embedding_options INTERFACE levin::core levin_warnings)

foreach(program threads_program exit_program logging_host store_host)
  add_executable(${program} "${CMAKE_CURRENT_LIST_DIR}/${program}.cpp")
  target_link_libraries(${program} PRIVATE levin_embedding_options)
endforeach()
target_compile_options(store_host PRIVATE -fopenmp)
target_link_options(store_host PRIVATE -fopenmp)
# Its spdlog is in an object library: LibTorch's include folder has another libfmt. ENABLE_EXPORTS: the worst case, in which
# the program's symbols come before the symbols of all libraries.
add_library(host_log OBJECT "${CMAKE_CURRENT_LIST_DIR}/host_log.cpp")
target_compile_features(host_log PRIVATE cxx_std_20)
target_compile_definitions(host_log PRIVATE FMT_HEADER_ONLY)
target_include_directories(host_log PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}")
target_link_libraries(host_log PRIVATE spdlog::spdlog_header_only)
target_link_libraries(logging_host PRIVATE host_log)
set_target_properties(logging_host PROPERTIES ENABLE_EXPORTS ON)

foreach(plugin first_plugin second_plugin)
  add_library(${plugin} MODULE "${CMAKE_CURRENT_LIST_DIR}/plugin.cpp")
  target_link_libraries(${plugin} PRIVATE levin_embedding_options)
endforeach()
add_executable(plugin_host "${CMAKE_CURRENT_LIST_DIR}/plugin_host.cpp")
target_compile_features(plugin_host PRIVATE cxx_std_20)
target_compile_definitions(plugin_host PRIVATE LEVIN_CORE_NAME="$<TARGET_SONAME_FILE_NAME:levin_core>")
target_link_libraries(plugin_host PRIVATE levin_warnings ${CMAKE_DL_LIBS})

add_test(NAME embedding COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/embedding_test.py"
  $<TARGET_FILE:threads_program> $<TARGET_FILE:exit_program> $<TARGET_FILE:logging_host> $<TARGET_FILE:store_host>
  $<TARGET_FILE:plugin_host> $<TARGET_FILE:first_plugin> $<TARGET_FILE:second_plugin>)
set_tests_properties(embedding PROPERTIES LABELS unit TIMEOUT 300 COST 30)
