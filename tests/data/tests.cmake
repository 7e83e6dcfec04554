levin_test(data LIBS ZLIB::ZLIB FILES
  data/augment_test.cpp
  data/batch_test.cpp
  data/bpe_test.cpp
  data/csv_test.cpp
  data/dataloader_test.cpp
  data/dataset_test.cpp
  data/download_test.cpp
  data/gather_rows_test.cpp
  data/idx_test.cpp
  data/mnist_test.cpp
  data/sampler_test.cpp
  data/sentence_piece_test.cpp
  data/text_csv_test.cpp
  data/text_test.cpp)
