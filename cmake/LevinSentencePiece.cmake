# Target sentencepiece::sentencepiece: the library that encodes text, without the library that trains its models, which the
# package's pkg-config file would also link.
find_path(LEVIN_SENTENCEPIECE_INCLUDE sentencepiece_processor.h)
find_library(LEVIN_SENTENCEPIECE sentencepiece)
if(NOT LEVIN_SENTENCEPIECE_INCLUDE OR NOT LEVIN_SENTENCEPIECE)
  message(FATAL_ERROR "levin_text (${LEVIN_text_HOLDS}) needs SentencePiece, which was not found: install its development "
    "package (cmake/debian-packages.txt has Debian's names), or pass -DLEVIN_TEXT=OFF.")
endif()
mark_as_advanced(LEVIN_SENTENCEPIECE_INCLUDE LEVIN_SENTENCEPIECE)
add_library(sentencepiece::sentencepiece UNKNOWN IMPORTED)
set_target_properties(sentencepiece::sentencepiece PROPERTIES
  IMPORTED_LOCATION "${LEVIN_SENTENCEPIECE}" INTERFACE_INCLUDE_DIRECTORIES "${LEVIN_SENTENCEPIECE_INCLUDE}")
