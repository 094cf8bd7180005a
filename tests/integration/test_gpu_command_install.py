"""`tests/gpu` where what it needs is found, installed and built: torch, nvcc, NCCL, nccl-tests, all of them pretended here."""

import ctypes
import os
import pathlib
import unittest
import unittest.mock

import gpu_tests
import test_gpu_command

GPU = test_gpu_command.GPU


class Found(test_gpu_command.Quiet):
    def test_torch_is_the_machines_own_where_it_has_one_with_cuda(self):
        python = self.folder / "python3"
        python.write_text(f"#!/bin/sh\necho {self.folder}/torch\n")
        python.chmod(0o755)
        more = {"PATH": f"{self.folder}:/usr/bin:/bin", "LOCKSTEP_PYTHON": ""}
        with unittest.mock.patch.dict(os.environ, more), unittest.mock.patch.object(GPU, "TORCH", self.folder / "none"):
            self.assertEqual(GPU.find_torch(), (None, None))
            (self.folder / "torch" / "lib").mkdir(parents=True)
            (self.folder / "torch" / "lib" / "libtorch_cpu.so").touch()
            self.assertEqual(GPU.find_torch(), (None, None), "one for CPUs")
            (self.folder / "torch" / "lib" / "libtorch_cuda.so").touch()
            self.assertEqual(GPU.find_torch(), (self.folder / "torch", str(python)))
            with unittest.mock.patch.dict(os.environ, {"PATH": "/usr/bin:/bin", "LOCKSTEP_PYTHON": str(python)}):
                self.assertEqual(GPU.find_torch(), (self.folder / "torch", str(python)))

    def test_without_torch_everything_else_is_built_and_one_row_says_so(self):
        commands = []
        options = unittest.mock.Mock(no_install=True, no_build=False, first=True, only=[], inspector=None)
        with unittest.mock.patch.object(GPU, "find_torch", return_value=(None, None)), \
                unittest.mock.patch.object(GPU, "run", lambda *words, **_: commands.append([str(word) for word in words]) or True), \
                unittest.mock.patch.object(GPU, "targets_of", return_value=["lockstepd"]):
            table = GPU.Table()
            GPU.prepare(table, options, self.folder, [GPU.PARTS[0]], GPU.Left())
        self.assertEqual([command[:2] for command in commands], [["cmake", "-B"], ["cmake", "--build"]])
        self.assertIn("-DLOCKSTEP_TORCH=", commands[0])
        self.assertEqual(commands[1][-2:], ["--target", "lockstepd"])
        self.assertEqual([row[:2] for row in table.rows], [("lockstep-train with CUDA", "NOT RUN")])

    def pretended(self, path, said):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\necho '{said}'\n")
        path.chmod(0o755)
        return path

    def pretended_torch(self, python, cuda):
        """A Python whose torch is made with this CUDA."""
        torch = self.folder / f"torch-{cuda}"
        (torch / "lib").mkdir(parents=True)
        (torch / "lib" / "libtorch_cuda.so").touch()
        (torch / "version.py").write_text(f"__version__ = '2.9.0'\ncuda: Optional[str] = '{cuda}'\nhip: Optional[str] = None\n")
        self.pretended(python, torch)
        return torch

    def test_a_torch_of_another_cuda_than_nvcc_is_not_built_with(self):
        """cmake ended over it, so that every test was NOT RUN."""
        python, own, tools = self.folder / "bin" / "python3", self.folder / "frameworks" / "torch", self.folder / "toolkit"
        twelve = self.pretended_torch(python, "12.8")
        self.pretended(tools / "bin" / "nvcc", "Cuda compilation tools, release 13.0, V13.0.48")
        commands = []

        def run(*words, **_):
            commands.append([str(word) for word in words])
            if "install-frameworks" in commands[-1][0]:
                self.pretended_torch(own / "bin" / "python", "13.2")
            return True

        def prepared(**more):
            commands.clear()
            options = unittest.mock.Mock(no_build=False, first=True, only=[], inspector=None, **more)
            table = GPU.Table()
            with unittest.mock.patch.object(GPU, "TORCH", own), unittest.mock.patch.object(GPU, "run", run), \
                    unittest.mock.patch.object(GPU, "targets_of", return_value=["lockstepd"]), unittest.mock.patch.dict(
                        os.environ, {"PATH": f"{python.parent}:/usr/bin:/bin", "CUDA_HOME": str(tools), "LOCKSTEP_PYTHON": ""}):
                _, *torch = GPU.prepare(table, options, self.folder, [GPU.PARTS[0]], GPU.Left())
            built = next(word for command in commands if command[:2] == ["cmake", "-B"] for word in command if "LOCKSTEP_TORCH=" in word)
            return torch, built.partition("=")[2], table.rows

        # Nothing may be installed: the rest is built, and scripts have the torch that is there.
        torch, built, rows = prepared(no_install=True)
        self.assertEqual((torch, built), ([twelve, str(python)], ""))
        self.assertEqual([row[:2] for row in rows], [("lockstep-train with CUDA", "NOT RUN")])
        self.assertRegex(rows[0][2], f"^the torch of {python} is made with CUDA 12, and {tools}/bin/nvcc is of 13: ")
        # It may.
        torch, built, rows = prepared(no_install=False)
        self.assertIn(["deploy/install-frameworks", "--gpu", "torch"], commands)
        self.assertEqual((torch, built, rows), ([self.folder / "torch-13.2", str(own / "bin" / "python")], str(self.folder / "torch-13.2"), []))
        # That of a toolkit of its own CUDA is as good as ever.
        self.pretended(tools / "bin" / "nvcc", "Cuda compilation tools, release 12.4, V12.4.99")
        torch, built, rows = prepared(no_install=False)
        self.assertNotIn("deploy/install-frameworks", [command[0] for command in commands])
        self.assertEqual((torch, built, rows), ([twelve, str(python)], str(twelve), []))

    def test_of_the_programs_of_a_part_those_are_built_that_there_are(self):
        ninja = self.folder / "ninja"
        ninja.write_text("#!/bin/sh\nprintf 'lockstepd: phony\\nbin/lockstepd: LINKER\\nnccl_rank: phony\\ntest_base: phony\\n'\n")
        ninja.chmod(0o755)
        parts = [part for part in GPU.PARTS if part.name in ("gpu.nccl", "gpu.native_gpu")]
        with unittest.mock.patch.dict(os.environ, {"PATH": f"{self.folder}:/usr/bin:/bin"}):
            self.assertEqual(GPU.targets_of(self.folder, parts), ["lockstepd", "nccl_rank"])

    def test_a_newer_nccl_is_preloaded_before_that_of_torch(self):
        beside = self.folder / "nvidia" / "nccl" / "lib" / "libnccl.so.2"
        beside.parent.mkdir(parents=True)
        beside.touch()
        newer = "/newer/libnccl.so.2"
        for found, torchs, preloaded in (((2, 32, 3), (2, 28, 9), newer), ((2, 29, 7), (2, 28, 9), None),
                                         ((2, 32, 3), (2, 31, 1), newer), ((2, 32, 3), (2, 32, 3), None)):
            versions = {str(beside): torchs, newer: found}
            with unittest.mock.patch.dict(os.environ, {"LOCKSTEP_NCCL_LIBRARY": newer}), \
                    unittest.mock.patch.object(gpu_tests, "nccl_version", lambda path, known=versions: known.get(str(path), ())):
                os.environ.pop("LD_PRELOAD", None)
                variables = GPU.environment(self.folder, None, self.folder / "torch", None)
            self.assertEqual(variables.get("LD_PRELOAD"), preloaded)
            self.assertEqual(variables["LOCKSTEP_NCCL_LIBRARY"], newer)

    def test_the_nccl_that_a_program_is_started_with_is_known(self):
        ldd = self.folder / "ldd"
        ldd.write_text("#!/bin/sh\nprintf '\\t/a/libnccl.so.2 (0x7f0)\\n\\tlibc.so.6 => /lib/libc.so.6 (0x7f1)\\n'\n")
        ldd.chmod(0o755)
        with unittest.mock.patch.dict(os.environ, {"PATH": f"{self.folder}:/usr/bin:/bin"}):
            self.assertEqual(gpu_tests.linked_nccl("/bin/true"), "/a/libnccl.so.2")
            ldd.write_text("#!/bin/sh\nprintf '\\tlibnccl.so.2 => /b/lib/libnccl.so.2 (0x7f0)\\n'\n")
            self.assertEqual(gpu_tests.linked_nccl("/bin/true"), "/b/lib/libnccl.so.2")
            ldd.write_text("#!/bin/sh\nprintf '\\tlibnccl.so.2 => not found\\n'\n")
            self.assertIsNone(gpu_tests.linked_nccl("/bin/true"))

    def nccl_tests(self, made=True, gpus=1, **variables):
        """What find_nccl_tests() says with this environment and so many GPUs, and the commands that it runs."""
        commands = []

        def run(*words, **_):
            commands.append([str(word) for word in words])
            if made and words[0] == "make":
                self.pretended(pathlib.Path(words[-1]), "")
            return made or words[0] != "make"

        variables = {"PATH": f"{self.folder}/bin:/usr/bin:/bin", "CUDA_HOME": str(self.folder / "toolkit"), "LOCKSTEP_NCCL_TESTS": "",
                     "MPI_HOME": "", **variables}
        with unittest.mock.patch.object(GPU, "run", run), unittest.mock.patch.object(gpu_tests, "gpus", lambda: gpus), \
                unittest.mock.patch.object(gpu_tests, "capabilities", lambda: ["90"]), unittest.mock.patch.dict(os.environ, variables):
            return GPU.find_nccl_tests(self.folder / "build", str(self.folder / "nccl" / "lib" / "libnccl.so.2")), commands

    def test_nccl_tests_are_fetched_and_made_for_this_machine(self):
        """Nothing brought an all_reduce_perf, so its figure was NOT RUN on every machine with one GPU."""
        self.pretended(self.folder / "toolkit" / "bin" / "nvcc", "Cuda compilation tools, release 13.0, V13.0.48")
        self.pretended(self.folder / "bin" / "mpicc", self.folder / "mpi" / "include")
        self.assertRegex(self.nccl_tests()[0][1], "^no libnccl.so.2: ")
        library, header = self.folder / "nccl" / "lib" / "libnccl.so.2", self.folder / "nccl" / "include" / "nccl.h"
        library.parent.mkdir(parents=True)
        library.touch()
        self.assertEqual(self.nccl_tests(), ((None, f"no nccl.h beside {library}"), []))
        header.parent.mkdir()
        header.touch()
        found, commands = self.nccl_tests()
        self.assertRegex(found[1], "^no mpi.h, .*: deploy/install-deps --bench")
        self.assertEqual(commands, [])
        (self.folder / "mpi" / "include").mkdir(parents=True)
        (self.folder / "mpi" / "include" / "mpi.h").touch()

        found, commands = self.nccl_tests(made=False)
        self.assertRegex(found[1], "^it does not compile here")
        sources = self.folder / "build" / "nccl-tests"
        self.assertEqual([command[:1] + command[-2:] for command in commands[:2]], [
            ["git", "https://github.com/NVIDIA/nccl-tests", str(sources)], ["git", "--quiet", "a0b82b2"]])
        found, commands = self.nccl_tests()
        self.assertEqual(found, (str(sources / "build" / "all_reduce_perf"), ""))
        make = commands[-1]
        for word in ("MPI=1", f"MPI_HOME={self.folder}/mpi", f"CUDA_HOME={self.folder.resolve()}/toolkit",
                     "NVCC_GENCODE=-gencode=arch=compute_90,code=sm_90"):
            self.assertIn(word, make)
        home = pathlib.Path(next(word for word in make if word.startswith("NCCL_HOME=")).partition("=")[2])
        self.assertEqual(((home / "lib" / "libnccl.so").resolve(), (home / "include" / "nccl.h").resolve()),
                         (library.resolve(), header.resolve()))
        self.assertEqual(self.nccl_tests(), (found, []), "it is there now")

        # One process has as many GPUs as there are ranks: no MPI.
        (sources / "build" / "all_reduce_perf").unlink()
        found, commands = self.nccl_tests(gpus=4)
        self.assertIn("MPI=0", commands[-1])

    def test_nccl_tests_that_are_there_are_taken_if_they_do(self):
        own = self.pretended(self.folder / "own_perf", "")
        self.assertEqual(self.nccl_tests(LOCKSTEP_NCCL_TESTS=str(own)), ((str(own), ""), []))
        self.assertEqual(self.nccl_tests(LOCKSTEP_NCCL_TESTS="/no/perf"), ((None, "/no/perf is not there"), []))
        there = self.pretended(self.folder / "bin" / "all_reduce_perf", "")
        self.assertEqual(self.nccl_tests(gpus=4), ((str(there), ""), []))
        self.assertIsNone(self.nccl_tests()[0][0], "without MPI its ranks cannot share a GPU")
        self.pretended(self.folder / "bin" / "ldd", "libmpi.so.40 => /lib/libmpi.so.40 (0x7f0)")
        self.assertEqual(self.nccl_tests(), ((str(there), ""), []))

    def test_the_figures_are_given_them_or_a_row_says_why_not(self):
        for answer, named, rows in ((("/x/all_reduce_perf", ""), "/x/all_reduce_perf", []),
                                    ((None, "no mpi.h"), None, [("nccl-tests", "NOT RUN", "no mpi.h", None)])):
            seen = []
            options = unittest.mock.Mock(build=self.folder, first=False, no_figures=False, inspector=None)
            with unittest.mock.patch.object(gpu_tests, "no_gpu", return_value=""), \
                    unittest.mock.patch.object(GPU, "prepare", return_value=(None, None, None)), \
                    unittest.mock.patch.object(GPU, "find_nccl_tests", return_value=answer), \
                    unittest.mock.patch.object(GPU, "run_figures", lambda table, build, variables, left, seen=seen: seen.append(
                        (variables.get("LOCKSTEP_NCCL_TESTS"), table.rows))), \
                    unittest.mock.patch.dict(os.environ):
                os.environ.pop("LOCKSTEP_NCCL_TESTS", None)
                GPU.prove(options, [part for part in GPU.PARTS if part.name == GPU.FIGURES])
            self.assertEqual(seen, [(named, rows)])

    def test_what_the_figures_are_compared_with_is_installed_for_them_alone(self):
        for figures, word in ((True, "--bench"), (False, "--test")):
            commands = []
            with unittest.mock.patch.object(GPU, "find_torch", return_value=("torch", "python")), \
                    unittest.mock.patch.object(GPU, "run", lambda *words, said=commands: said.append(words) or True):
                self.assertEqual(GPU.install(self.folder, figures), [])
            self.assertEqual(commands, [("deploy/install-deps", word), ("deploy/install-deps", "--cuda")])

    def test_code_is_made_for_each_kind_of_gpu(self):
        class Driver:
            def cuInit(self, _):
                return 0

            def cuDeviceGetCount(self, count):
                count._obj.value = 3

            def cuDeviceGet(self, device, index):
                device._obj.value = index

            def cuDeviceGetAttribute(self, value, attribute, device):
                value._obj.value = {75: (9, 9, 8), 76: (0, 0, 6)}[attribute][device.value]

        with unittest.mock.patch.object(ctypes, "CDLL", lambda _: Driver()):
            self.assertEqual(gpu_tests.capabilities(), ["86", "90"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
