"""Debian's packages, the .rpm and the archive of the portable programs, made by CPack of what is built: what is in them,
what they depend on, that their scripts start nothing. Installing them, in a root of their own: tests/packages/run."""

import pathlib
import re
import shutil
import subprocess
import tarfile
import tempfile
import unittest

import harness

BUILD = harness.BIN.parent
SANITIZED = re.compile(r"^LOCKSTEP_SANITIZE:\w+=\S", re.MULTILINE)


def told_by(*command, **more):
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True, **more).stdout


@unittest.skipUnless(shutil.which("cpack") and (BUILD / "CPackConfig.cmake").exists(), "there is no cpack, or no build folder")
class Packages(unittest.TestCase):
    @classmethod
    def make(cls, generator):
        folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory(prefix="lockstep-packages-")))
        done = subprocess.run(["cpack", "-G", generator, "-B", folder, "--config", BUILD / "CPackConfig.cmake"], cwd=BUILD,
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise AssertionError(done.stdout + done.stderr)
        return [path for path in folder.iterdir() if path.is_file()]


@unittest.skipUnless(shutil.which("dpkg-deb") and shutil.which("dpkg-shlibdeps"), "dpkg-dev is not installed")
class Debian(Packages):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if SANITIZED.search((BUILD / "CMakeCache.txt").read_text()):
            raise unittest.SkipTest("built with sanitizers")
        cls.packages = {path.name.split("_")[0]: path for path in cls.make("DEB")}

    def files(self, package):
        return set(re.findall(r" \.(/\S+[^/\s])(?: -> \S+)?$", told_by("dpkg-deb", "-c", self.packages[package]), re.MULTILINE))

    def control(self, package, name):
        return told_by("dpkg-deb", "--info", self.packages[package], name)

    def test_each_program_is_a_package_with_what_belongs_to_it(self):
        self.assertLessEqual({"lockstepd", "lockstep", "lockstep-agent", "liblockstep-dev"}, set(self.packages))
        self.assertLessEqual({"/usr/bin/lockstepd", "/usr/share/man/man8/lockstepd.8", "/etc/lockstep/lockstepd.toml",
                              "/usr/lib/systemd/system/lockstepd.service", "/usr/lib/sysusers.d/lockstep.conf",
                              "/usr/lib/tmpfiles.d/lockstep.conf", "/usr/share/zsh/site-functions/_lockstepd"}, self.files("lockstepd"))
        self.assertLessEqual({"/usr/bin/lockstep", "/usr/share/man/man1/lockstep.1", "/usr/share/man/man5/lockstep-job.5",
                              "/usr/share/bash-completion/completions/lockstep"}, self.files("lockstep"))
        self.assertLessEqual({"/usr/bin/lockstep-agent", "/usr/share/lockstep/python/hooks/sitecustomize.py"},
                             self.files("lockstep-agent"))
        everything = [file for package in self.packages for file in self.files(package)]
        self.assertEqual(len(everything), len(set(everything)), "a file is in two packages")
        self.assertEqual([file for file in everything if file.endswith(".pyc")], [])
        listed = told_by("dpkg-deb", "-c", self.packages["lockstep-agent"])
        self.assertEqual([line for line in listed.splitlines() if "__pycache__" in line], [], "empty folders")

    @unittest.skipUnless((harness.BIN / "lockstep-exec").exists(), "lockstep-exec is not built: no munge")
    def test_the_removal_of_lockstep_exec_takes_its_socket_along(self):
        """Purged, it left a socket that listened for a program that was gone, and was enabled."""
        with tempfile.TemporaryDirectory(prefix="lockstep-packages-") as folder:
            root = pathlib.Path(folder)
            (root / "systemctl").write_text(f"#!/bin/sh\necho \"$@\" >> {root}/asked\n")
            (root / "systemctl").chmod(0o755)
            for script, argument in (("postinst", "configure"), ("prerm", "upgrade"), ("prerm", "remove"), ("postrm", "remove")):
                # As on a machine that systemd runs.
                text = self.control("lockstep-exec", script).replace("/run/systemd/system", folder)
                subprocess.run(["/bin/sh", "-s", argument], input=text, text=True, check=True, env={"PATH": f"{folder}:/usr/bin:/bin"})
            self.assertEqual((root / "asked").read_text().splitlines(),
                             ["daemon-reload", "--quiet disable --now lockstep-exec.socket", "daemon-reload"])

    def test_what_they_depend_on_is_named(self):
        for package, library in (("lockstepd", "libsqlite3-0"), ("lockstep", "libyaml-cpp"), ("lockstep-agent", "libssl3")):
            self.assertIn(library, told_by("dpkg-deb", "--field", self.packages[package], "Depends"))
        self.assertEqual(self.control("lockstepd", "conffiles").split(), ["/etc/lockstep/lockstepd.toml"])

    def test_the_unit_reads_the_settings_and_the_programs_are_stripped(self):
        folder = tempfile.mkdtemp(prefix="lockstep-packages-")
        self.addCleanup(shutil.rmtree, folder)
        told_by("dpkg-deb", "-x", self.packages["lockstepd"], folder)
        root = pathlib.Path(folder)
        unit = (root / "usr/lib/systemd/system/lockstepd.service").read_text()
        self.assertRegex(unit, r"(?m)^ExecStart=/usr/bin/lockstepd --config /etc/lockstep/lockstepd.toml$")
        # A runs directory whose server came late left a unit that had failed for good; a mistyped setting was tried again and again.
        self.assertRegex(unit, r"(?ms)^\[Unit\].*^StartLimitIntervalSec=0$.*^\[Service\].*^Restart=on-failure$")
        # Exit status 2 is also what slurm.conf on a file server that comes late looks like.
        self.assertNotIn("RestartPreventExitStatus", unit)
        self.assertNotIn("RequiresMountsFor", unit)
        self.assertRegex(unit, r"(?m)^After=.*\bremote-fs.target munge.service slurmctld.service$")
        self.assertNotIn("/usr/local", unit + (root / "usr/lib/systemd/user/lockstepd.service").read_text())
        self.assertNotIn(".symtab", told_by("readelf", "--wide", "-S", root / "usr/bin/lockstepd"))
        # Settings that lockstepd does not know would stop it.
        settings = (root / "etc/lockstep/lockstepd.toml").read_text()
        known = told_by(harness.BIN / "lockstepd", "--help")
        for name in re.findall(r"^#? ?([a-z-]+) = ", settings, re.MULTILINE):
            self.assertRegex(known, rf"(?<![\w-])--{name}(?![\w-])")

    def test_no_script_starts_a_service(self):
        for package in ("lockstepd", "lockstep-agent", *({"lockstep-exec"} & set(self.packages))):
            for script in ("postinst", "prerm", "postrm"):
                if (package, script) == ("lockstep-agent", "postrm"):
                    continue
                text = self.control(package, script)
                orders = re.sub(r"echo .*|#.*", "", text)
                self.assertNotRegex(orders, r"systemctl.*\b(start|restart|try-restart|enable)\b|deb-systemd|invoke-rc|lockstepd &")
                told_by("sh", "-n", "-c", text)


@unittest.skipUnless((BUILD / "portable" / "lockstep-agent").exists(), "the portable programs are not built (deploy/install-deps --portable)")
class Node(Packages):
    FILES = {"/usr/bin/lockstep", "/usr/bin/lockstep-agent", "/usr/share/lockstep/python/hooks/sitecustomize.py",
             "/usr/share/man/man1/lockstep.1", "/usr/share/doc/lockstep-node/copyright"}

    @unittest.skipUnless(shutil.which("rpmbuild"), "rpmbuild is not installed (apt-get install rpm)")
    def test_the_rpm_asks_for_glibc_2_28_only(self):
        [package] = self.make("RPM")
        self.assertLessEqual(self.FILES, set(told_by("rpm", "-qpl", package).split()))
        required = told_by("rpm", "-qp", "--requires", package)
        self.assertEqual([name for name in required.splitlines()
                          if not re.match(r"(lib(c|m|dl|pthread|rt)|ld-linux-x86-64)\.so\.\d|rpmlib\(", name)], [])
        versions = [tuple(map(int, found.split("."))) for found in re.findall(r"GLIBC_([\d.]+)", required)]
        self.assertLessEqual(max(versions), (2, 28))
        self.assertEqual(told_by("rpm", "-qp", "--scripts", package).strip(), "")

    def test_the_archive_unpacks_below_usr_and_its_programs_run(self):
        [package] = self.make("TGZ")
        folder = tempfile.mkdtemp(prefix="lockstep-packages-")
        self.addCleanup(shutil.rmtree, folder)
        with tarfile.open(package) as archive:
            self.assertLessEqual({name.lstrip("/") for name in self.FILES}, set(archive.getnames()))
            archive.extractall(folder, filter="data")
        self.assertEqual(told_by(f"{folder}/usr/bin/lockstep", "--version"), told_by(harness.BIN / "lockstep", "--version"))


if __name__ == "__main__":
    harness.main()
