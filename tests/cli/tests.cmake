levin_test(cli FILES
  cli/arguments_test.cpp
  cli/builtins_test.cpp
  cli/help_text_test.cpp
  cli/hostile_yaml_test.cpp
  cli/merge_test.cpp
  cli/round_trip_test.cpp
  cli/run_config_test.cpp
  cli/yaml_file_test.cpp)

if(LEVIN_BUILD_TOOL)
  levin_test(hostile_program FILES
    cli/hostile_program_test.cpp)
  add_dependencies(hostile_program_test levin_tool)
endif()
