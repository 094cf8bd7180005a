"""All of job/trainer, cuda_device.cpp included, compiles with the LibTorch of PyTorch's wheel, which has CUDA: CI's own build
links Debian's, which has none. As CMake's build with LOCKSTEP_TORCH compiles it, in one piece and without making code. (What
it computes on a GPU: `tests/gpu`.)"""

import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
import time
import unittest

import frameworks
import harness

BUILD = pathlib.Path(os.environ.get("LOCKSTEP_BIN", harness.BIN)).parent
TRAINER = harness.SOURCE / "job" / "trainer"
# Linked where LibTorch has no CUDA; the other is there for where it has.
WITHOUT_CUDA = "no_cuda_device.cpp"


def package():
    return next(iter(sorted((frameworks.ENVIRONMENTS / "torch").glob("lib/python3*/site-packages/torch"))), None)


def cuda_headers():
    """Of the toolkit that CMake has found, or of the wheels."""
    cache = (BUILD / "CMakeCache.txt").read_text() if (BUILD / "CMakeCache.txt").exists() else ""
    named = [line.partition("=")[2] for line in cache.splitlines() if line.startswith("CUDAToolkit_INCLUDE_DIR")]
    for folder in [*named, harness.SOURCE / "build" / "cuda" / "nvidia" / "cu13" / "include", "/usr/local/cuda/include"]:
        if folder and (pathlib.Path(folder) / "cuda_runtime_api.h").exists():
            return folder
    return None


def flags():
    """As the build compiles the trainer, without LibTorch's folders and precompiled header."""
    entries = json.loads((BUILD / "compile_commands.json").read_text())
    command = next(shlex.split(entry["command"]) for entry in entries
                   if "/lockstep_trainer.dir/" in entry["command"] and "-x c++-header" not in entry["command"])
    out, skip = [], 0
    for word, after in zip(command, [*command[1:], ""], strict=True):
        if skip:
            skip -= 1
        elif word in ("-include", "-o", "-c") or (word == "-isystem" and "torch" in after):
            skip = 1
        elif not word.startswith(("-O", "-g", "-D_FORTIFY", "-DLOCKSTEP_ONEDNN", "-D_GLIBCXX_USE_CXX11_ABI")):
            out.append(word)
    return out


class LibTorch(unittest.TestCase):
    ENVIRONMENT = "torch"

    def setUp(self):
        if frameworks.SLURM:
            self.skipTest("it starts no job")
        if not frameworks.is_installed("torch") or package() is None:
            self.skipTest("torch is not installed: deploy/install-frameworks torch")
        if cuda_headers() is None:
            self.skipTest("no headers of the CUDA toolkit: deploy/install-deps --cuda")
        if not (BUILD / "compile_commands.json").exists() or not (harness.BIN / "lockstep-train").exists():
            self.skipTest("lockstep-train is not built: no LibTorch")

    def compile(self, sources, folder):
        """What the compiler says of them in one piece; "" if it takes them."""
        piece = pathlib.Path(folder) / "trainer.cpp"
        # First, as it is precompiled where this is built.
        piece.write_text("#include <ATen/ATen.h>\n" + "".join(f'#include "{source}"\n' for source in sources))
        torch = package() / "include"
        done = subprocess.run([*flags(), "-O0", "-fopenmp", "-fsyntax-only", "-isystem", torch, "-isystem", torch / "torch/csrc/api/include",
                               "-isystem", cuda_headers(), piece], cwd=BUILD, capture_output=True, text=True, check=False)
        return done.stderr if done.returncode else ""

    def test_the_trainer_compiles_with_the_libtorch_of_pytorchs_wheel_and_cuda(self):
        sources = [path for path in sorted(TRAINER.rglob("*.cpp")) if path.name != WITHOUT_CUDA]
        self.assertIn(TRAINER / "cuda_device.cpp", sources)
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            said = self.compile(sources, folder)
        print(f"{len(sources)} sources in {time.monotonic() - began:.0f} s")
        self.assertEqual(said, "", said[-6000:])

    def test_a_mistake_in_what_only_cuda_compiles_is_seen(self):
        with tempfile.TemporaryDirectory() as folder:
            wrong = pathlib.Path(folder) / "cuda_device.cpp"
            text = (TRAINER / "cuda_device.cpp").read_text()
            self.assertIn("graph.capture_end();", text)
            wrong.write_text(text.replace("graph.capture_end();", "graph.capture_ends();"))
            self.assertIn("capture_ends", self.compile([wrong], folder))

    def configure(self, folder, torch):
        """A program as lockstep-train is linked and installed, without its sources."""
        (folder / "main.cpp").write_text("""\
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>
#include <cstdio>
int main() {
    int version = 0;
    cudaRuntimeGetVersion(&version);
    std::printf("%d %d\\n", static_cast<int>(c10::cuda::device_count()), version / 1000);
}
""")
        (folder / "CMakeLists.txt").write_text(f"""\
cmake_minimum_required(VERSION 3.25)
project(linked LANGUAGES C CXX)
list(APPEND CMAKE_MODULE_PATH {harness.SOURCE}/deploy/cmake)
include(Cuda)
include(LibTorch)
include(StandIns)
add_executable(linked main.cpp)
set_target_properties(linked PROPERTIES CXX_STANDARD 20)
target_link_libraries(linked PRIVATE torch)
lockstep_make_stand_ins()
lockstep_finds_torch(linked)
install(TARGETS linked)
""")
        toolkit = pathlib.Path(cuda_headers()).parent
        return subprocess.run(["cmake", "-G", "Ninja", "-S", folder, "-B", folder / "build", f"-DLOCKSTEP_TORCH={torch}", f"-DCMAKE_INSTALL_PREFIX={folder}/installed"],
                              env=os.environ | {"CUDA_HOME": str(toolkit)}, capture_output=True, text=True, check=False)

    def test_an_installed_program_finds_the_wheel_it_is_linked_with(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            done = self.configure(folder, package())
            self.assertIn("with CUDA: TRUE", done.stdout, done.stdout + done.stderr)
            built = subprocess.run(["cmake", "--build", folder / "build", "--target", "install"], capture_output=True, text=True, check=False)
            self.assertEqual(built.returncode, 0, built.stdout[-3000:] + built.stderr)
            linked = folder / "installed/bin/linked"
            started = subprocess.run([linked], env={}, capture_output=True, text=True, check=False)
            found = subprocess.run(["ldd", linked], env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=True).stdout
        self.assertEqual(started.returncode, 0, started.stderr)
        self.assertRegex(started.stdout, r"^\d+ \d+$")
        self.assertNotIn("not found", found)
        # One runtime of CUDA, torch's own: the toolkit is there to build only.
        runtimes = [line.split()[2] for line in found.splitlines() if "libcudart" in line]
        self.assertEqual(len(runtimes), 1, found)
        self.assertIn(package().parent.resolve(), pathlib.Path(runtimes[0]).resolve().parents)

    def test_a_wheel_of_another_cuda_than_the_compiler_is_refused(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            for file in ("lib/libtorch_cpu.so", "lib/libtorch_cuda.so", "include/ATen/ATen.h"):
                (folder / "site/torch" / file).parent.mkdir(parents=True, exist_ok=True)
                (folder / "site/torch" / file).touch()
            # As PyTorch's own begins.
            (folder / "site/torch/version.py").write_text("__version__ = '2.0.1+cu118'\ncuda: Optional[str] = '11.8'\nhip: Optional[str] = None\n")
            done = self.configure(folder, folder / "site/torch")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("LOCKSTEP_TORCH is made with CUDA 11", " ".join(done.stderr.split()))


if __name__ == "__main__":
    result = unittest.main(verbosity=2, exit=False).result
    sys.exit(1 if not result.wasSuccessful() else 77 if result.testsRun == len(result.skipped) else 0)
