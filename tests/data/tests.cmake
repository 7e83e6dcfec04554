levin_test(data LIBS OpenSSL::Crypto ZLIB::ZLIB PkgConfig::libzstd FILES
  data/augment_test.cpp
  data/batch_sampler_test.cpp
  data/batch_test.cpp
  data/bpe_test.cpp
  data/columns_test.cpp
  data/combined_loader_test.cpp
  data/csv_test.cpp
  data/dataloader_test.cpp
  data/dataset_test.cpp
  data/download_test.cpp
  data/gather_rows_test.cpp
  data/hdf5_test.cpp
  data/hostile_tokenizer_test.cpp
  data/huggingface_tokenizer_test.cpp
  data/idx_test.cpp
  data/length_batch_sampler_test.cpp
  data/image_folder_test.cpp
  data/images_test.cpp
  data/mnist_test.cpp
  data/named_batch_test.cpp
  data/npy_test.cpp
  data/pack_images_test.cpp
  data/queue_loader_test.cpp
  data/replay_buffer_test.cpp
  data/sampler_test.cpp
  data/sentence_piece_test.cpp
  data/sequence_length_warmup_test.cpp
  data/shard_cache_test.cpp
  data/stratified_test.cpp
  data/stream_loader_test.cpp
  data/stream_order_test.cpp
  data/streams_damage_test.cpp
  data/streams_formats_test.cpp
  data/streams_test.cpp
  data/sum_tree_test.cpp
  data/text_csv_test.cpp
  data/text_test.cpp
  data/token_file_test.cpp
  data/weighted_sampler_test.cpp
  data/wrapped_loader_test.cpp)

# The same tokens as Hugging Face's package; skipped where it is not installed.
add_test(NAME data.tokenizer_peers COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/tokenizer_peers.py"
  "${levin_programs}/tokenizer_program" "${PROJECT_SOURCE_DIR}")
set_tests_properties(data.tokenizer_peers PROPERTIES LABELS peers TIMEOUT 300 COST 30 SKIP_RETURN_CODE 77)

# Packed images, read by mosaicml-streaming and compared with torchvision's and Pillow's; skipped where these are missing.
if(TARGET levin_tool)
  add_test(NAME data.pack_peers COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/pack_peers.py"
    $<TARGET_FILE:levin_tool>)
  set_tests_properties(data.pack_peers PROPERTIES LABELS peers TIMEOUT 300 COST 10 SKIP_RETURN_CODE 77)
endif()

# Columns of Parquet, Arrow and CSV files, compared with pyarrow, pandas and Python's csv; skipped where pyarrow is missing.
add_test(NAME data.columns_peers COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/columns_peers.py"
  "${levin_programs}/columns_program")
set_tests_properties(data.columns_peers PROPERTIES LABELS peers TIMEOUT 300 COST 20 SKIP_RETURN_CODE 77)

# Runs with shards on a web server and in a bucket of S3, disturbed and killed.
if(LEVIN_BUILD_TOOL)
  add_test(NAME data.stream_runs COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_LIST_DIR}/stream_runs_test.py"
    $<TARGET_FILE:levin_tool>)
  set_tests_properties(data.stream_runs PROPERTIES LABELS multi_process TIMEOUT 600 COST 40 SKIP_RETURN_CODE 77)
endif()
