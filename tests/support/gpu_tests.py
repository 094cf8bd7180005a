"""Tests that need a GPU, or what is only there beside one: how they are marked, found and told of.

A class of Python's unittest is marked with @needs_gpu, a test of GoogleTest by the words of GPU in its program's
lockstep_test() (tests/CMakeLists.txt). ctest has them under the label `gpu`; `tests/gpu` runs them.
"""

import ast
import ctypes
import fnmatch
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# What marks a line of output that `tests/gpu` makes a row of.
ROW = "lockstep-gpu-row "
# Tests that alone are run of those that need a GPU, with blanks between: Class.test.
ONLY = "LOCKSTEP_TEST_ONLY"
SKIP_CODE = 77  # of ctest's SKIP_RETURN_CODE
LEAST_NCCL = (2, 30)  # the first that lets ranks share a GPU


def no_gpu():
    """Why there is none; "" if there is one."""
    try:
        code = ctypes.CDLL("libcuda.so.1").cuInit(0)
    except OSError as error:
        return f"no GPU: {error}"
    return f"no GPU: cuInit says {code}" if code else ""


def gpus():
    """How many there are."""
    count = ctypes.c_int()
    driver = ctypes.CDLL("libcuda.so.1")
    driver.cuInit(0)
    driver.cuDeviceGetCount(ctypes.byref(count))
    return count.value


def capabilities():
    """What CUDA code is compiled for on this machine: "90", say, of each kind of GPU."""
    driver, found = ctypes.CDLL("libcuda.so.1"), set()
    for index in range(gpus()):
        device, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
        driver.cuDeviceGet(ctypes.byref(device), index)
        driver.cuDeviceGetAttribute(ctypes.byref(major), 75, device)  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, MINOR
        driver.cuDeviceGetAttribute(ctypes.byref(minor), 76, device)
        found.add(10 * major.value + minor.value)
    return [str(one) for one in sorted(found)]


def torch_folder(python=None):
    """Where the torch of a Python lies, of LOCKSTEP_PYTHON or PATH if none is named; None if it has none. Does not import it."""
    python = python or os.environ.get("LOCKSTEP_PYTHON") or shutil.which("python3")
    asked = "import importlib.util; print(importlib.util.find_spec('torch').submodule_search_locations[0])"
    try:
        said = subprocess.run([str(python), "-c", asked], capture_output=True, text=True, check=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return pathlib.Path(said.strip())


def nccl_beside(torch):
    """The NCCL that pip has installed with a torch; None if there is none."""
    path = pathlib.Path(torch).parent / "nvidia" / "nccl" / "lib" / "libnccl.so.2" if torch else None
    return path if path and path.exists() else None


def nccl_version(path):
    """As (2, 30, 1); () if it does not load."""
    version = ctypes.c_int()
    try:
        ctypes.CDLL(str(path)).ncclGetVersion(ctypes.byref(version))
    except (OSError, AttributeError):
        return ()
    return version.value // 10000, version.value // 100 % 100, version.value % 100


def real_nccl(*builds):
    """Path of the NCCL that tests load: LOCKSTEP_NCCL_LIBRARY; else the newest of what the loader finds, of the wheels in these
    build folders (deploy/install-deps --cuda) and of what is beside torch. None without one."""
    named = os.environ.get("LOCKSTEP_NCCL_LIBRARY")
    if named and nccl_version(named):
        return named
    folders = [*(pathlib.Path(build) / "cuda" for build in builds), *filter(None, [os.environ.get("LOCKSTEP_CUDA_WHEELS")])]
    paths = ["libnccl.so.2", *(f"{folder}/nvidia/nccl/lib/libnccl.so.2" for folder in folders), nccl_beside(torch_folder())]
    newest = max(filter(None, paths), key=nccl_version)  # of equal ones the first
    return str(newest) if nccl_version(newest) else None


def linked_nccl(program):
    """The NCCL that a program is started with, its libraries' included; None if it is linked with none."""
    found = re.search(r"(/\S*libnccl\.so\S*) \(", loaded_by(program))
    return found[1] if found else None


def loaded_by(program):
    """What ldd says of it."""
    return subprocess.run(["ldd", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False).stdout


def no_sharing(nccl):
    """Why ranks cannot share a GPU with the NCCL of this path; "" if they can, or if nothing is known of it (None)."""
    version = nccl_version(nccl) if nccl else ()
    if not version or version >= LEAST_NCCL:
        return ""
    return (f"a GPU, but NCCL {'.'.join(map(str, version))} ({nccl}) lets no ranks share one: 2.30 or later is needed "
            "(LOCKSTEP_NCCL_LIBRARY)")


def needs_gpu(marked):
    """Marks a class whose tests need a GPU. It skips by itself where there is none, and says why."""
    marked.needs_gpu = True
    return marked


def row(name, verdict, reason="", seconds=None):
    """`verdict`: seen, failed or NOT RUN; of a figure its value."""
    print(ROW + json.dumps({"name": name, "verdict": verdict, "reason": reason, "seconds": seconds}), flush=True)


def figure(name, value, unit):
    """A figure that a test has measured, for the table of `tests/gpu`."""
    print(f"{name}: {value:.3g} {unit}")
    if os.environ.get("LOCKSTEP_TEST_GPU") == "only":
        row(name, f"{value:.3g} {unit}")


class Loader(unittest.TestLoader):
    def __init__(self, gpu):
        super().__init__()
        self.gpu = gpu

    def getTestCaseNames(self, testCaseClass):
        return super().getTestCaseNames(testCaseClass) if getattr(testCaseClass, "needs_gpu", False) == self.gpu else []


def words_of_error(err):
    return " ".join(f"{err[0].__name__}: {err[1]}".split())[:400]


class Result(unittest.TextTestResult):
    """A row of each test, as soon as it is over."""

    def startTest(self, test):
        self.began, self.said = time.monotonic(), ("seen", "")
        super().startTest(test)

    def stopTest(self, test):
        super().stopTest(test)
        self.tell(test, *self.said, time.monotonic() - self.began)

    def tell(self, test, verdict, reason, seconds=None):
        self.stream.flush()
        row(test.id().removeprefix("__main__."), verdict, reason, seconds)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.said = ("NOT RUN", reason)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.said = ("failed", words_of_error(err))

    def addError(self, test, err):
        super().addError(test, err)
        said = ("failed", words_of_error(err))
        if isinstance(test, unittest.TestCase):
            self.said = said
        else:
            self.tell(test, *said)  # setUpClass

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.said = ("failed", words_of_error(err))


def nothing_was_run(result):
    """Whether every test was skipped. A test that skips a subtest of it has run; a class that skips in setUpClass counts no test."""
    whole = sum(isinstance(test, unittest.TestCase) and not hasattr(test, "test_case") for test, _ in result.skipped)
    return bool(result.skipped) and result.testsRun == whole


def main():
    """unittest.main(); by LOCKSTEP_TEST_GPU only what needs a GPU, or what does not. 77, which ctest shows as skipped, where
    every test was skipped; of those that need a GPU, where one was."""
    wanted = os.environ.get("LOCKSTEP_TEST_GPU", "")
    if wanted != "only":
        loader = Loader(False) if wanted == "none" else unittest.defaultTestLoader
        result = unittest.main(verbosity=2, exit=False, testLoader=loader).result
        if not result.wasSuccessful():
            sys.exit(1)
        if nothing_was_run(result):
            print("SKIPPED: no test was run", file=sys.stderr)
            sys.exit(SKIP_CODE)
        return
    runner = unittest.TextTestRunner(verbosity=2, resultclass=Result)
    arguments = [sys.argv[0], *(os.environ.get(ONLY, "").split() or sys.argv[1:])]
    result = unittest.main(exit=False, argv=arguments, testLoader=Loader(True), testRunner=runner).result
    if not result.wasSuccessful() or not result.testsRun:
        sys.exit(1)
    sys.exit(SKIP_CODE if result.skipped else 0)


# --- what the sources say -----------------------------------------------------------------------

def is_marked(node):
    return any(ast.unparse(one).endswith("needs_gpu") for one in node.decorator_list)


def marked_classes(path):
    """{class: its tests} of a Python file, with those of the classes of the file that it derives from."""
    classes = {node.name: node for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.ClassDef)}

    def tests_of(name):
        if name not in classes:
            return set()
        own = {one.name for one in classes[name].body if isinstance(one, ast.FunctionDef) and one.name.startswith("test_")}
        return own.union(*(tests_of(ast.unparse(base)) for base in classes[name].bases))
    return {name: sorted(tests_of(name)) for name, node in classes.items() if is_marked(node)}


def python_tests():
    """(ctest's name, test) of everything that is marked."""
    for path in sorted((ROOT / "tests" / "integration").glob("test_*.py")):
        for name, tests in marked_classes(path).items():
            for test in tests:
                yield f"gpu.{path.stem.removeprefix('test_')}", f"{name}.{test}"


# Words of a skip that is for want of a GPU, of its driver or of NCCL. Not: that there is one, that a program is not
# built, or that there is no toolkit to compile with.
WANT = re.compile(r"\b(?:GPUs?|CUDA|NCCL|libcuda|libnccl|nvidia)", re.IGNORECASE)
NOT_WANT = re.compile(r"has a GPU|is not built|toolkit")
SKIP = re.compile(r"skip(?:Test|If|Unless)?$", re.IGNORECASE)


def words_of(call, around):
    """What a skip says; where that is made elsewhere, all that stands around it."""
    says = call.args[-1] if call.args else call
    return ast.unparse(around if isinstance(says, (ast.Name, ast.Call)) else says)


def skips_of_python(path):
    """(line, class, words, whether it is marked) of each skip that is for want of a GPU."""
    for holder in ast.parse(path.read_text(encoding="utf-8")).body:
        if not isinstance(holder, ast.ClassDef):
            continue
        functions = [node for node in ast.walk(holder) if isinstance(node, ast.FunctionDef)]
        calls = [(call, holder) for call in holder.decorator_list] + [
            (call, function) for function in functions for call in ast.walk(function)]
        for call, around in calls:
            if isinstance(call, ast.Call) and SKIP.search(ast.unparse(call.func)):
                words = words_of(call, around)
                if WANT.search(words) and not NOT_WANT.search(words):
                    yield call.lineno, holder.name, words, is_marked(holder)


TEST = re.compile(r"^TEST(?:_P|_F)?\((\w+),\s*(\w+)\)", re.MULTILINE)


def skips_of_cpp(path):
    """(line, suite, test, words) of each skip that is for want of a GPU."""
    text = path.read_text(encoding="utf-8")
    for skip in re.finditer(r"GTEST_SKIP\(\)(.*?);", text, re.DOTALL):
        words = " ".join(skip.group(1).split())
        if not WANT.search(words) or NOT_WANT.search(words):
            continue
        test = [found for found in TEST.finditer(text) if found.start() < skip.start()]
        suite, name = test[-1].groups() if test else ("", "")
        yield text.count("\n", 0, skip.start()) + 1, suite, name, words


# Of each program, what its lockstep_test() calls GPU; a test is of such a name.
MARK = re.compile(r"lockstep_test\((?:[^()]|\([^()]*\))*?\bGPU\s+(\S+?)[\s)]")


def marked_cpp(path):
    """(suite, test) of each that its program's CMakeLists.txt marks."""
    patterns = MARK.findall((path.parent / "CMakeLists.txt").read_text(encoding="utf-8"))
    for suite, name in TEST.findall(path.read_text(encoding="utf-8")):
        if any(fnmatch.fnmatchcase(f"{suite}.{name}", pattern) for pattern in patterns):
            yield suite, name
