levin_test(cli FILES
  cli/builtins_test.cpp
  cli/help_text_test.cpp
  cli/old_options_test.cpp
  cli/trainer_help_test.cpp)

levin_test(tools PLAIN FILES
  cli/arguments_test.cpp
  cli/hostile_yaml_test.cpp
  cli/loss_trend_test.cpp
  cli/merge_test.cpp
  cli/metrics_reader_test.cpp
  cli/report_parts_test.cpp
  cli/round_trip_test.cpp
  cli/run_config_test.cpp
  cli/run_folder_test.cpp
  cli/run_list_test.cpp
  cli/step_model_test.cpp
  cli/submit_test.cpp
  cli/top_view_test.cpp
  cli/yaml_file_test.cpp
  sweep/searcher_test.cpp
  sweep/sweep_options_test.cpp)

if(LEVIN_BUILD_TOOL AND LEVIN_BUILD_EXAMPLES)  # runs the tool with the models of examples/
  levin_test(cli_tool PLAIN COST 60 FILES
    cli/convert_test.cpp
    cli/hostile_program_test.cpp
    cli/mistakes_test.cpp
    cli/plan_cluster_test.cpp
    cli/plan_devices_test.cpp
    cli/plan_memory_test.cpp
    cli/unused_folders_test.cpp)
  levin_test(cli_tool_tensors TORCH COST 60 FILES
    cli/checkpoint_tool_test.cpp
    cli/export_model_test.cpp
    cli/predict_output_test.cpp
    cli/tune_test.cpp
    cli/upgrade_checkpoint_test.cpp)
  foreach(name cli_tool cli_tool_tensors)
    add_dependencies(${name}_test levin_served)
  endforeach()
  add_test(NAME cli.submit_names
    COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_SOURCE_DIR}/cli/submit_names_test.py" $<TARGET_FILE:levin_tool>)
  set_tests_properties(cli.submit_names PROPERTIES LABELS examples TIMEOUT 300)
  foreach(part check completion new_project pack report runs)
    add_test(NAME cli.${part}
      COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_SOURCE_DIR}/cli/${part}_test.py" $<TARGET_FILE:levin_tool>)
    set_tests_properties(cli.${part} PROPERTIES LABELS examples TIMEOUT 600)
  endforeach()
  # Debian's Python, which has Debian's packages.
  add_test(NAME cli.schema COMMAND /usr/bin/python3 -B "${CMAKE_CURRENT_SOURCE_DIR}/cli/schema_test.py" $<TARGET_FILE:levin_tool>)
  set_tests_properties(cli.schema PROPERTIES LABELS examples TIMEOUT 300 SKIP_RETURN_CODE 77)
endif()

if(LEVIN_BUILD_TOOL)  # in a real terminal
  add_test(NAME cli.top
    COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_SOURCE_DIR}/cli/top_test.py" $<TARGET_FILE:levin_tool>)
  set_tests_properties(cli.top PROPERTIES LABELS examples TIMEOUT 300 COST 30)
endif()
