# A device that is not the CPU, made of CPU kernels (support/device/test_device.h): what a run does with one, without a
# GPU. In a program of its own, because LibTorch then has an accelerator.
add_library(levin_test_device SHARED
  support/device/autocast.cpp
  support/device/hooks.cpp
  support/device/memory.cpp
  support/device/on_cpu.cpp
  support/device/operators.cpp
  support/device/recorder.cpp
  support/device/streams.cpp)
set_target_properties(levin_test_device PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
target_include_directories(levin_test_device PUBLIC "${CMAKE_CURRENT_SOURCE_DIR}")
target_compile_options(levin_test_device PRIVATE $<$<CONFIG:Release>:-O1>)
target_link_libraries(levin_test_device PUBLIC levin::levin PRIVATE levin_warnings)

levin_test(device TORCH COST 30 LIBS levin_test_device FILES
  device/device_batches_test.cpp
  device/device_inference_test.cpp
  device/device_late_check_test.cpp
  device/device_lora_test.cpp
  device/device_options_test.cpp
  device/device_recording_test.cpp
  device/device_training_test.cpp
  device/device_waits_test.cpp
  device/test_device_test.cpp
  precision/scaled_devices_test.cpp
  strategies/replay_watch_test.cpp)

# Opened by a run file.
add_library(levin_test_plugin SHARED support/plugin.cpp)
target_link_libraries(levin_test_plugin PRIVATE levin::levin levin_warnings)
add_library(levin_test_other_plugin SHARED support/plugin.cpp)
target_link_libraries(levin_test_other_plugin PRIVATE levin::levin levin_warnings)
target_compile_definitions(levin_test_other_plugin PRIVATE LEVIN_TEST_TORCH_VERSION="2.99.1")
if(LEVIN_BUILD_TOOL AND LEVIN_BUILD_EXAMPLES)
  add_test(NAME cli.plugins
    COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_SOURCE_DIR}/cli/plugins_test.py" $<TARGET_FILE:levin_tool>
    $<TARGET_FILE:levin_test_plugin> $<TARGET_FILE:levin_test_device> $<TARGET_FILE:levin_test_other_plugin>)
  set_tests_properties(cli.plugins PROPERTIES LABELS examples TIMEOUT 300)
endif()
