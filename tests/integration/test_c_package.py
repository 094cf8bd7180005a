"""The library for programs in C and C++: installed into a fresh folder, built against from outside the tree, run as a job."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import harness

BUILD = harness.BIN.parent
EXAMPLE = harness.SOURCE / "deploy" / "examples" / "c"
# What a program does that its author did not think through; prints a line of JSON.
MISUSE = r"""
#include <errno.h>
#include <lockstep/lockstep.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
static void say(const char* name, int status) { printf("\"%s\": [%d, \"%s\"], ", name, status, lockstep_error()); }
int main(void) {
  void* value = (void*)1;
  size_t size = 7;
  bool swapped = false;
  int64_t sum = 0;
  char* large = calloc(1, (1 << 20) + 1);
  printf("{");
  say("null key", lockstep_set(NULL, "x", 1));
  say("empty key", lockstep_set("", "x", 1));
  say("large", lockstep_set("large", large, (1 << 20) + 1));
  say("nobody set it", lockstep_get("nothing", &value, &size));
  printf("\"untouched\": %d, ", value == (void*)1 && size == 7);
  say("never", lockstep_wait("nothing", 0.2));
  say("alone", lockstep_barrier("alone", 0.2));
  say("once", lockstep_set_once("fixed", "a", 1));
  say("twice", lockstep_set_once("fixed", "b", 1));
  say("no swap", lockstep_compare_and_set("fixed2", "z", 1, "c", 1, &swapped));
  printf("\"swapped\": %d, ", swapped);
  say("with a zero", lockstep_set("bytes", "a\0b", 3));
  if (lockstep_get("bytes", &value, &size) == LOCKSTEP_OK) {
    printf("\"bytes\": %d, ", size == 3 && memcmp(value, "a\0b", 4) == 0);
    lockstep_free(value);
  }
  lockstep_add("counter", 5, NULL);
  lockstep_add("counter", -2, &sum);
  printf("\"sum\": %lld, ", (long long)sum);
  struct lockstep_metric bad = {"Not A Name", 1}, none = {NULL, 1};
  printf("\"bad names\": %d, ", lockstep_report(1, &bad, 1) || lockstep_report(1, &none, 1) || lockstep_phase(NULL));
  errno = 77;
  lockstep_report_loss(2, 0.5);
  printf("\"errno\": %d, ", errno);
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    int failed = lockstep_set("child", "1", 1) != LOCKSTEP_OK || !lockstep_report_loss(3, 0.25);
    _exit(failed);
  }
  int status = -1;
  waitpid(child, &status, 0);
  printf("\"child\": %d, ", status);
  say("parent", lockstep_wait("child", 10));
  printf("\"rank\": %d, \"world\": %d}\n", lockstep_rank(), lockstep_world_size());
  return 0;
}
"""


@unittest.skipUnless((BUILD / "lib" / "liblockstep.so").exists(), "liblockstep is not built")
@unittest.skipUnless(shutil.which("cc") and shutil.which("cmake"), "there is no C compiler or CMake")
class CPackage(harness.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        folder = cls.enterClassContext(tempfile.TemporaryDirectory(prefix="lockstep-c-"))
        cls.prefix = pathlib.Path(folder) / "here"
        first = pathlib.Path(folder) / "first"
        subprocess.run(["cmake", "--install", BUILD, "--component", "devel", "--prefix", first], check=True, capture_output=True)
        first.rename(cls.prefix)  # a package may be moved
        cls.example = pathlib.Path(folder) / "example"
        shutil.copytree(EXAMPLE, cls.example)
        built = pathlib.Path(folder) / "built"
        for command in (["cmake", "-S", cls.example, "-B", built, f"-DCMAKE_PREFIX_PATH={cls.prefix}"], ["cmake", "--build", built]):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise AssertionError(done.stdout + done.stderr)
        cls.built = built
        cls.misuse = cls.compiled(pathlib.Path(folder), "misuse", MISUSE)

    @classmethod
    def compiled(cls, folder, name, text):
        """As the README says for who has no CMake; C99, and without a warning."""
        [place] = cls.prefix.glob("**/pkgconfig")
        flags = subprocess.run(["pkg-config", "--cflags", "--libs", "lockstep"], env={**os.environ, "PKG_CONFIG_PATH": str(place)},
                               check=True, capture_output=True, text=True).stdout.split()
        source = folder / f"{name}.c"
        source.write_text(text)
        subprocess.run(["cc", "-std=c99", "-D_POSIX_C_SOURCE=200809L", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-o",
                        folder / name, source, *flags, f"-Wl,-rpath,{cls.prefix}/lib:{place.parent}"], check=True)
        return folder / name

    def test_the_library_shows_only_what_the_header_names_and_needs_only_the_c_library(self):
        [library] = {path.resolve() for path in self.prefix.glob("**/liblockstep.so*")}
        shown = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
        names = {line.split()[-1] for line in shown.splitlines()}
        self.assertEqual([name for name in names if not name.startswith("lockstep_")], [])
        header = (self.prefix / "include" / "lockstep" / "lockstep.h").read_text()
        for name in names:
            self.assertIn(f"{name}(", header)
        needed = subprocess.run(["objdump", "-p", library], check=True, capture_output=True, text=True).stdout
        libraries = {line.split()[-1] for line in needed.splitlines() if "NEEDED" in line}
        self.assertLessEqual(libraries, {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"})

    def test_the_examples_meet_train_and_write_a_checkpoint_when_they_are_asked(self):
        gate = "100000000"  # until it is cancelled
        job = self.daemon.submit(harness.command_job(
            "c", self.built / "train_c", gate, resources={"nodes": 1, "ranks_per_node": 2}))["id"]
        self.daemon.wait_for(job, lambda one: one.get("step", 0) > 10, 60, "steps")
        self.daemon.cli("checkpoint", job)
        done = self.daemon.wait_for(job, lambda one: one.get("checkpoint_step", 0) > 10, 60, "a checkpoint")
        self.assertEqual(done["state"], "running")
        self.daemon.api("POST", f"/v1/jobs/{job}/cancel")
        self.daemon.wait_state(job, "cancelled")
        for program in ("train_c", "train_cpp"):
            job = self.daemon.submit(harness.command_job(
                program, self.built / program, "40", resources={"nodes": 1, "ranks_per_node": 3}))["id"]
            done = self.daemon.wait_state(job, "succeeded")
            ranks = self.daemon.get(f"/v1/jobs/{job}/ranks")["items"]
            self.assertEqual([(one["step"], round(one["loss"], 3)) for one in ranks],
                             [(40, round((0.9 ** 39 * (rank - 3)) ** 2, 3)) for rank in range(3)])
            self.assertIn("rank 2 of 3: x = 2.9", self.daemon.cli("logs", job, "--rank", "2").stdout)

    def test_what_is_misused_says_so_and_harms_nothing(self):
        job = self.daemon.submit(harness.command_job("misuse", self.misuse, resources={"nodes": 1, "ranks_per_node": 2}))["id"]
        self.daemon.wait_state(job, "succeeded")
        said = [json.loads(self.daemon.cli("logs", job, "--rank", str(rank)).stdout.split("| ")[-1]) for rank in (0, 1)]
        for one in said:
            self.assertEqual([one[name][0] for name in ("null key", "empty key")], [1, 1], one)
            self.assertIn(one["large"][0], (1, 5), one)
            self.assertEqual(one["nobody set it"][0], 2, one)
            self.assertEqual((one["never"][0], one["untouched"]), (7, 1), one)
            self.assertIn("nothing", one["never"][1])
            self.assertEqual((one["with a zero"][0], one["bytes"], one["errno"], one["child"], one["parent"][0]), (0, 1, 77, 0, 0), one)
            self.assertEqual((one["bad names"], one["twice"][0], one["swapped"]), (0, 3, 0), one)
        self.assertEqual([one["rank"] for one in said], [0, 1])

    def test_ranks_that_share_a_gpu_have_a_local_rank_of_their_own(self):
        # It was LOCAL_RANK, the number of the GPU: of two ranks the same.
        asks = ("import ctypes, sys; library = ctypes.CDLL(sys.argv[1]); "
                "print(library.lockstep_local_rank(), library.lockstep_local_world_size())")
        plain = {name: value for name, value in os.environ.items() if not name.startswith("LOCKSTEP_")}
        place = {"LOCKSTEP_JOB_ID": "ls-x", "LOCKSTEP_SOCKET": "/nowhere", "RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1",
                 "LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
        for extra, local in (({"LOCKSTEP_LOCAL_RANK": "3", "LOCKSTEP_RANK": "3"}, 3), ({}, 1),  # launch node: torchrun's alone
                             ({"LOCKSTEP_LOCAL_RANK": "0", "LOCKSTEP_RANK": "0"}, 1)):  # a torchrun within a rank
            done = subprocess.run([sys.executable, "-c", asks, BUILD / "lib" / "liblockstep.so"], env={**plain, **place, **extra},
                                  capture_output=True, text=True, check=True)
            self.assertEqual(done.stdout, f"{local} 4\n")

    def test_a_wrong_number_costs_none_of_the_others_and_mpirun_s_ranks_are_known(self):
        # One of them made every rank "rank 0 of 1"; of mpirun's the rank was -1.
        asks = ("import ctypes, sys; library = ctypes.CDLL(sys.argv[1]); library.lockstep_checkpoint_directory.restype = ctypes.c_char_p; "
                "print(library.lockstep_rank(), library.lockstep_world_size(), library.lockstep_checkpoint_directory().decode())")
        place = {"LOCKSTEP_JOB_ID": "ls-x", "LOCKSTEP_SOCKET": "/nowhere", "LOCKSTEP_CHECKPOINT_DIR": "/c"}
        for more in ({"RANK": "3", "WORLD_SIZE": "4", "MASTER_PORT": "70000"},
                     {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4"}):
            done = subprocess.run([sys.executable, "-c", asks, BUILD / "lib" / "liblockstep.so"], env={**place, **more},
                                  capture_output=True, text=True, check=True)
            self.assertEqual(done.stdout, "3 4 /c\n")

    def test_by_hand_a_program_is_one_rank_and_reports_do_nothing(self):
        plain = {name: value for name, value in os.environ.items() if not name.startswith("LOCKSTEP_")}
        for program in ("train_c", "train_cpp"):
            done = subprocess.run([self.built / program, "50"], env=plain, capture_output=True, text=True, check=True)
            self.assertRegex(done.stdout, r"^rank 0 of 1: x = 2\.98")
        done = subprocess.run([self.misuse], env=plain, capture_output=True, text=True, check=True)
        said = json.loads(done.stdout)
        self.assertEqual(said["parent"][0], 6, said)
        self.assertIn("not started by Lockstep", said["parent"][1])


if __name__ == "__main__":
    harness.main()
