levin_test(adapters TORCH FILES
  adapters/lora_all_kinds_test.cpp
  adapters/lora_layers_test.cpp
  adapters/lora_math_test.cpp
  adapters/peft_folder_test.cpp
  adapters/quantized_weight_test.cpp
  callbacks/lora_kinds_test.cpp
  callbacks/lora_models_test.cpp
  callbacks/lora_parts_test.cpp
  callbacks/lora_test.cpp)

# Compared with PEFT (skipped, with the reason, where its packages are missing), and on several ranks.
add_test(NAME adapters.lora_peers COMMAND Python3::Interpreter -B
  "${CMAKE_CURRENT_LIST_DIR}/lora_peers_test.py" "${levin_programs}/lora_program")
set_tests_properties(adapters.lora_peers PROPERTIES LABELS peers TIMEOUT 600 COST 40 SKIP_RETURN_CODE 77)
add_test(NAME adapters.lora_layers_peers COMMAND Python3::Interpreter -B
  "${CMAKE_CURRENT_LIST_DIR}/lora_layers_peers_test.py" "${levin_programs}/lora_program")
set_tests_properties(adapters.lora_layers_peers PROPERTIES LABELS peers TIMEOUT 600 COST 40 SKIP_RETURN_CODE 77)
add_test(NAME adapters.lora_ranks COMMAND Python3::Interpreter -B
  "${CMAKE_CURRENT_LIST_DIR}/lora_ranks_test.py" "${levin_programs}/lora_program")
set_tests_properties(adapters.lora_ranks PROPERTIES LABELS multi_process TIMEOUT 300 COST 60)
