// The programs that tests start. bin/NAME is a link to this one, and the name says which is run: each program of its
// own takes the compiler 10 s for what LibTorch's headers leave to the end of a file.
#include <cstdio>
#include <string>

#include "levin/core/process_end.h"

#define LEVIN_TEST_PROGRAMS(use)                                                                               \
  use(classification_program) use(event_program) use(exported_peers) use(freed_memory_program)                 \
      use(huggingface_program) use(levin_conformance) use(logger_program) use(lora_program) use(model_program) \
          use(onnx_program) use(other_metrics_program) use(rank_program) use(tokenizer_program)

#define LEVIN_DECLARE(name)     \
  namespace name {              \
  int run_program(int, char**); \
  }
LEVIN_TEST_PROGRAMS(LEVIN_DECLARE)

int main(int argc, char** argv) {
  levin::leave_static_objects();
  const std::string path = argv[0];
  const std::string wanted = path.substr(path.rfind('/') + 1);
#define LEVIN_RUN(name) \
  if (wanted == #name) return name::run_program(argc, argv);
  LEVIN_TEST_PROGRAMS(LEVIN_RUN)
  std::fprintf(stderr, "%s: run it by the name of a program.\n", wanted.c_str());
  return 2;
}
