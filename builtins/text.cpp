// The classes of the part levin_text, for run files. core/process/parts.cpp lists the same names.
#include "levin/data/sets/text.h"

#include "levin/core/options/registry.h"
#include "levin/core/process/parts.h"
#include "levin/data/sets/text_csv.h"
#include "levin/data/sets/token_file_data.h"

namespace levin {

LEVIN_PART(text) {
  auto& data = Registry<DataModule>::instance();
  data.add<TextCsv>("TextCsv", "labelled text from a CSV file, for encoders");
  data.add<TextFile>("TextFile", "a text file as blocks of tokens, for language models");
  data.add<TokenFileData>("TokenFileData", "files of token ids, memory-mapped, for language models");
}

}  // namespace levin
