// The benchmarks: one program under several names, so that LibTorch's templates are compiled for it once.
#pragma once

namespace bench {

namespace checkpoint {
int run_program(int argc, char** argv);
}
namespace compile {
int run_program(int argc, char** argv);
}
namespace ddp {
int run_program(int argc, char** argv);
}
namespace devices {
int run_program(int argc, char** argv);
}
namespace freed_memory {
int run_program(int argc, char** argv);
}
namespace gpt {
int run_program(int argc, char** argv);
}
namespace images {
int run_program(int argc, char** argv);
}
namespace loader {
int run_program(int argc, char** argv);
}
namespace logging {
int run_program(int argc, char** argv);
}
namespace lora {
int run_program(int argc, char** argv);
}
namespace metrics {
int run_program(int argc, char** argv);
}
namespace optimizers {
int run_program(int argc, char** argv);
}
namespace overhead {
int run_program(int argc, char** argv);
}
namespace plan {
int run_program(int argc, char** argv);
}
namespace recompute {
int run_program(int argc, char** argv);
}
namespace recorded {
int run_program(int argc, char** argv);
}
namespace reinforcement {
int run_program(int argc, char** argv);
}
namespace startup {
int run_program(int argc, char** argv);
}
namespace streams {
int run_program(int argc, char** argv);
}
namespace thousand_layers {
int run_program(int argc, char** argv);
}
namespace token_batches {
int run_program(int argc, char** argv);
}
namespace xlmr {
int run_program(int argc, char** argv);
}

}  // namespace bench
