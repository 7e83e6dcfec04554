"""Plants each kind of violation in a small tree and sees check_layers.py name file, line, edge and rule."""
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import layer_rules

HERE = Path(__file__).parent


class CheckLayers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        for name in ["core", "data", "optim", "trainer", "callbacks", "cli", "strategies"]:
            self.write(f"{name}/CMakeLists.txt", "target_sources(levin PRIVATE a.cpp)")
            self.write(f"{name}/a.cpp", "#include <vector>\n")
        self.write("core/error.h", "#pragma once\n")
        self.write("core/a.cpp", '#include "levin/core/error.h"\n')

    def write(self, file, text):
        path = self.root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def run_check(self):
        done = subprocess.run([sys.executable, HERE / "check_layers.py", self.root], capture_output=True, text=True)
        self.assertEqual(done.stderr, "")
        return done.returncode, done.stdout

    def assert_found(self, *parts):
        status, output = self.run_check()
        self.assertEqual(status, 1, output)
        self.assertEqual(len(output.splitlines()), 1, output)
        for part in parts:
            self.assertIn(part, output)

    def test_a_clean_tree_passes(self):
        status, output = self.run_check()
        self.assertEqual(status, 0, output)

    def test_a_sibling_is_a_forbidden_edge(self):
        self.write("optim/b.h", "#pragma once\n")
        self.write("data/a.cpp", '#include <vector>\n\n#include "levin/optim/b.h"\n')
        self.assert_found("data/a.cpp:3", "data -> optim", "data may include: core")

    def test_core_includes_nothing_above(self):
        self.write("trainer/b.h", "#pragma once\n")
        self.write("core/a.cpp", '#include "levin/core/error.h"\n#  include "levin/trainer/b.h"\n')
        self.assert_found("core/a.cpp:2", "core -> trainer", "core may include: core/options")

    def test_trainer_does_not_include_callbacks(self):
        self.write("callbacks/b.h", "#pragma once\n")
        self.write("trainer/a.cpp", '#include "levin/callbacks/b.h"\n')
        self.assert_found("trainer/a.cpp:1", "trainer -> callbacks")

    def test_a_subfolder_is_a_layer_of_its_own(self):
        self.write("trainer/CMakeLists.txt", "levin_sources(step a.cpp step/a.cpp run/a.cpp)")
        self.write("trainer/step/a.cpp", '#include "levin/trainer/run/a.h"\n')
        self.write("trainer/run/a.h", "#pragma once\n")
        self.write("trainer/run/a.cpp", '#include "levin/trainer/run/a.h"\n')
        self.assert_found("trainer/step/a.cpp:1", "trainer/step -> trainer/run", "trainer/step may include:")

    def test_a_subfolder_that_no_rule_names_is_found(self):
        self.write("data/CMakeLists.txt", "levin_sources(data a.cpp)")
        self.write("data/odd/b.h", "#pragma once\n")
        self.assert_found("data/CMakeLists.txt:1", "data/odd is not in MAY_INCLUDE")

    def test_units_that_include_each_other_are_a_cycle(self):
        self.write("data/CMakeLists.txt", "levin_sources(data a.cpp b.cpp c.cpp)")
        self.write("data/b.h", "#pragma once\n")
        self.write("data/c.h", '#include "levin/data/b.h"\n')
        self.write("data/b.cpp", '#include "levin/data/b.h"\n#include "levin/data/c.h"\n')
        self.write("data/c.cpp", '#include "levin/data/c.h"\n')
        self.assert_found("data/c.h:1", "closes a cycle of units: data/b -> data/c -> data/b")

    def test_a_part_includes_only_parts_that_it_needs(self):
        self.write("data/CMakeLists.txt", "levin_sources(data a.cpp)\nlevin_sources(files PART arrays files/b.cpp)\n"
                   "levin_sources(images PART images images/c.cpp)")
        self.write("data/files/b.h", "#pragma once\n")
        self.write("data/files/b.cpp", '#include "levin/data/files/b.h"\n')
        self.write("data/images/c.cpp", '#include <vector>\n')
        self.assertEqual(self.run_check()[0], 0)
        self.write("data/CMakeLists.txt", "levin_sources(data a.cpp)\nlevin_sources(sets PART images sets/d.cpp)\n"
                   "levin_sources(files PART arrays files/b.cpp)\nlevin_sources(images PART images images/c.cpp)")
        self.write("data/sets/d.cpp", '#include "levin/data/files/b.h"\n')
        self.assert_found("data/sets/d.cpp:1", "the part images may not include", "of arrays", "It may include core, images")

    def test_callbacks_include_trainer(self):
        self.write("trainer/b.h", "#pragma once\n")
        self.write("callbacks/a.cpp", '#include "levin/trainer/b.h"\n')
        self.assertEqual(self.run_check()[0], 0)

    def test_c10d_is_for_strategies(self):
        header = "#include <torch/csrc/distributed/c10d/Store.hpp>\n"
        self.write("strategies/a.cpp", header)
        self.assertEqual(self.run_check()[0], 0)
        self.write("data/a.cpp", header)
        self.assert_found("data/a.cpp:1", "Store.hpp", "only strategies/ and libtorch/ include c10d")

    def test_internals_of_libtorch_are_for_one_folder(self):
        self.write("libtorch/CMakeLists.txt", "levin_sources(libtorch a.cpp)")
        self.write("libtorch/borrowed_keys.h", "#pragma once\n")
        private = ["<c10/core/CPUAllocator.h>", "<c10/core/impl/VirtualGuardImpl.h>", "<ATen/core/dispatch/CppSignature.h>",
                   "<torch/csrc/autograd/function.h>", "<ATen/ops/batch_norm_native.h>", "<ATen/ops/exp_cpu_dispatch.h>",
                   "<ATen/ops/_has_compatible_shallow_copy_type.h>", "<ATen/ThreadLocalState.h>", "<c10/core/AutogradState.h>",
                   "<torch/library.h>", '"levin/libtorch/borrowed_keys.h"']
        self.write("libtorch/a.cpp", "".join(f"#include {header}\n" for header in private))
        public = ["<c10/core/impl/LocalDispatchKeySet.h>", "<ATen/core/dispatch/Dispatcher.h>",
                  "<torch/csrc/autograd/custom_function.h>", "<ATen/ops/batch_norm.h>"]
        self.write("strategies/a.cpp", "".join(f"#include {header}\n" for header in public))
        self.assertEqual(self.run_check()[0], 0, self.run_check()[1])
        for header in private:
            self.write("strategies/a.cpp", f"#include <vector>\n#include {header}\n")
            self.assert_found("strategies/a.cpp:2", header.strip('<>"'), "only libtorch/")

    def test_names_of_libtorchs_internals_are_for_one_folder(self):
        self.write("strategies/a.cpp", "// c10d::Reducer waits\nusing torch::autograd::variable_list;\n"
                   "at::detail::createCPUGenerator(seed); c10::impl::ExcludeDispatchKeyGuard guard; is_wrapped_number(x);\n")
        self.assertEqual(self.run_check()[0], 0)
        for name in ["c10d::Reducer", "torch::autograd::Node", "c10::DispatchKey::DeferredInit", "c10::SetCPUAllocator(own)",
                     "at::native::batch_norm", "at::internal::GRAIN_SIZE", "at::detail::make_tensor<c10::TensorImpl>",
                     "c10::AutogradState::get_tls_state()", "at::ThreadLocalStateGuard", "storage->set_data_ptr_noswap(other)",
                     "impl->shallow_copy_and_detach(version, true)", "x.unsafeGetTensorImpl()->set_wrapped_number(true)"]:
            self.write("strategies/a.cpp", f"#include <vector>\n{name} x;\n")
            self.assert_found("strategies/a.cpp:2: uses", "only libtorch/")

    def test_yaml_is_read_in_one_place(self):
        self.write("yaml/CMakeLists.txt", "target_sources(levin PRIVATE a.cpp)")
        self.write("yaml/a.cpp", "#include <yaml-cpp/yaml.h>\n")
        self.assertEqual(self.run_check()[0], 0)
        self.write("trainer/a.cpp", "#include <yaml-cpp/yaml.h>\n")
        self.assert_found("trainer/a.cpp:1", "only yaml/ includes yaml-cpp")

    def test_the_whole_of_libtorch_is_for_nobody(self):
        self.write("trainer/a.cpp", "#include <torch/torch.h>\n")
        self.assert_found("trainer/a.cpp:1", "torch/torch.h", "20 s")

    def test_core_sees_the_tensor_only(self):
        self.write("core/a.cpp", '#include "levin/core/error.h"\n#include <ATen/core/ATen_fwd.h>\n#include <ATen/core/Tensor.h>\n')
        self.assertEqual(self.run_check()[0], 0)
        self.write("core/a.cpp", '#include "levin/core/error.h"\n#include <ATen/ops/add.h>\n')
        self.assert_found("core/a.cpp:2", "ATen/ops/add.h", "ATen/core/Tensor.h")

    def test_a_chain_of_includes_that_leads_to_libtorch_is_named(self):
        self.write("cli/CMakeLists.txt", "levin_sources(cli a.cpp)\nlevin_sources(runs PART tools runs/b.cpp)")
        self.write("core/tensors.h", "#pragma once\n#include <ATen/core/Tensor.h>\n")
        self.write("core/state.h", '#include "levin/core/tensors.h"\n')
        self.write("cli/a.cpp", '#include "levin/core/state.h"\n')
        self.write("cli/runs/b.cpp", '#include "levin/core/error.h"\n')
        self.assertEqual(self.run_check()[0], 0)
        self.write("cli/runs/b.cpp", '#include "levin/core/state.h"\n')
        self.assert_found("core/tensors.h:2: leads to LibTorch: cli/runs/b.cpp -> core/state.h -> core/tensors.h -> "
                          "ATen/core/Tensor.h", "TORCH_FREE")

    def test_the_files_without_libtorch_exist(self):
        root = HERE.parents[1]
        for name in layer_rules.TORCH_FREE:
            self.assertTrue((root / name).is_dir() or any(root.glob(f"{name}.*")), name)

    def test_modules_enter_public_headers_in_one_place(self):
        self.write("trainer/lightning_module.h", "#include <torch/nn/module.h>\n")
        self.write("callbacks/a.cpp", '#include "levin/trainer/lightning_module.h"\n#include <torch/nn/module.h>\n')
        self.assertEqual(self.run_check()[0], 0)
        self.write("core/error.h", "")
        self.write("data/b.h", "#include <torch/nn/module.h>\n")
        self.write("data/a.cpp", '#include "levin/data/b.h"\n')
        self.assert_found("data/b.h:1", "trainer/lightning_module.h")

    def test_a_precompiled_header_is_named_by_cmake_and_included_by_nobody(self):
        self.write("data/data_pch.h", "#include <torch/nn/module.h>\n")
        self.assert_found("data/data_pch.h", "data/CMakeLists.txt")
        self.write("data/CMakeLists.txt", "target_sources(levin PRIVATE a.cpp)\ntarget_precompile_headers(x data_pch.h)")
        self.assertEqual(self.run_check()[0], 0, self.run_check()[1])

    def test_fields_that_each_including_file_would_compile_are_named(self):
        self.write("data/b.h", "//     static auto fields() {\nstruct A {\n  template <class = void>\n  static auto fields() {}\n"
                   "};\n")
        self.write("data/a.cpp", '#include "levin/data/b.h"\nstruct B {\n  static auto fields() {}\n};\n')
        self.assertEqual(self.run_check()[0], 0, self.run_check()[1])
        self.write("data/b.h", "struct A {\n  static auto fields() {}\n};\n")
        self.assert_found("data/b.h:2: fields() is not a template")

    def test_a_source_that_is_not_built_is_named(self):
        self.write("data/forgotten.cpp", "")
        self.write("data/CMakeLists.txt", "target_sources(levin PRIVATE a.cpp)  # forgotten.cpp")
        self.assert_found("data/forgotten.cpp", "data/CMakeLists.txt")

    def test_a_header_that_nothing_includes_is_named(self):
        self.write("data/lonely.h", '#include "levin/data/lonely.h"\n')
        self.assert_found("data/lonely.h", "nothing includes")

    def test_a_test_that_is_not_run_is_named(self):
        self.write("tests/CMakeLists.txt", "levin_test(core FILES core/a_test.cpp)")
        self.write("tests/core/a_test.cpp", "")
        self.write("tests/data/b_test.cpp", "")
        self.assert_found("tests/data/b_test.cpp", "levin_test")

    def test_a_bare_include_is_named(self):
        self.write("core/a.cpp", '#include "levin/core/error.h"\n#include "error.h"\n')
        self.assert_found("core/a.cpp:2", '"levin/<folder>/<file>.h"')

    def test_an_include_of_nothing_is_named(self):
        self.write("data/a.cpp", '#include "levin/core/gone.h"\n')
        self.assert_found("data/a.cpp:1", "does not exist")

    def test_a_long_file_is_named(self):
        self.write("data/a.cpp", "\n" * 601)
        self.assert_found("data/a.cpp:601", "601 lines", "LONG_FILES")

    def test_a_folder_without_a_line_in_the_table_is_named(self):
        self.write("helpers/CMakeLists.txt", "target_sources(levin PRIVATE a.cpp)")
        self.assert_found("helpers/CMakeLists.txt", "MAY_INCLUDE")


if __name__ == "__main__":
    unittest.main()
