# Target sentencepiece::sentencepiece: the library that encodes text, without the library that trains its models, which the
# package's pkg-config file would also link.
find_path(LEVIN_SENTENCEPIECE_INCLUDE sentencepiece_processor.h REQUIRED)
find_library(LEVIN_SENTENCEPIECE sentencepiece REQUIRED)
mark_as_advanced(LEVIN_SENTENCEPIECE_INCLUDE LEVIN_SENTENCEPIECE)
add_library(sentencepiece::sentencepiece UNKNOWN IMPORTED)
set_target_properties(sentencepiece::sentencepiece PROPERTIES
  IMPORTED_LOCATION "${LEVIN_SENTENCEPIECE}" INTERFACE_INCLUDE_DIRECTORIES "${LEVIN_SENTENCEPIECE_INCLUDE}")
