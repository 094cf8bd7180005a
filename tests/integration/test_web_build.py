"""How the web page gets into lockstepd: with Node.js, without it, and where the registry of packages is out of reach."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import gpu_tests

SOURCE = pathlib.Path(__file__).resolve().parents[2]
PROJECT = f"""cmake_minimum_required(VERSION 3.25)
project(small VERSION 0.1.0 LANGUAGES CXX)
list(APPEND CMAKE_MODULE_PATH {SOURCE}/deploy/cmake)
include(WebPage)
add_executable(small main.cpp)
target_include_directories(small PRIVATE ${{CMAKE_CURRENT_SOURCE_DIR}})
target_compile_features(small PRIVATE cxx_std_20)
lockstep_web_page(small)
"""
# What of lockstepd the generated source names, and a program that prints what it was given.
HEADER = """#pragma once
#include <span>
#include <string_view>
namespace lockstep {
struct BuiltInFile { std::string_view name, bytes; bool gzip = false; };
using BuiltInFiles = std::span<const BuiltInFile>;
BuiltInFiles built_in_page();
}
"""
MAIN = """#include "daemon/lockstepd/built_in_page.hpp"
#include <iostream>
int main() {
    for (const auto& file : lockstep::built_in_page()) {
        std::cout << file.name << " " << file.bytes.size() << " " << file.gzip << "\\n";
    }
}
"""
BUILD = """import {mkdirSync, writeFileSync, readFileSync} from 'node:fs';
import {gzipSync} from 'node:zlib';
const out = process.argv[process.argv.indexOf('--outdir') + 1];
mkdirSync(out + '/assets', {recursive: true});
const page = readFileSync(new URL('src/index.html', import.meta.url));
writeFileSync(out + '/index.html', page);
writeFileSync(out + '/index.html.gz', gzipSync(page));
writeFileSync(out + '/assets/icon-1.png', process.argv.includes('--quick') ? 'QUICK' : 'PNG');
"""


@unittest.skipUnless(shutil.which("node") and shutil.which("npm"), "no Node.js and npm: nothing to build the page with")
class WebBuild(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-test-"))
        self.addCleanup(shutil.rmtree, self.root, ignore_errors=True)
        self.write("CMakeLists.txt", PROJECT)
        self.write("daemon/lockstepd/built_in_page.hpp", HEADER)
        self.write("main.cpp", MAIN)
        self.write("web/build.mjs", BUILD)
        self.write("web/src/index.html", "<!doctype html>")
        self.package()

    def write(self, name, text):
        file = self.root / "source" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def package(self, **dependencies):
        package = {"name": "w", "version": "1.0.0", "private": True, "scripts": {"build": "node build.mjs"},
                   "dependencies": dependencies}
        packages = {"": {"name": "w", "version": "1.0.0", "dependencies": dependencies}}
        for name, version in dependencies.items():
            packages[f"node_modules/{name}"] = {
                "version": version, "resolved": f"http://127.0.0.1:9/{name}-{version}.tgz", "integrity": "sha512-AAAA"}
        self.write("web/package.json", json.dumps(package))
        self.write("web/package-lock.json", json.dumps(
            {"name": "w", "version": "1.0.0", "lockfileVersion": 3, "requires": True, "packages": packages}))

    def cmake(self, *arguments, path=None):
        environment = {**os.environ, "npm_config_cache": str(self.root / "npm"), **({"PATH": path} if path else {})}
        return subprocess.run([shutil.which("cmake"), *arguments], text=True, capture_output=True, check=False,
                              env=environment, timeout=240)

    def configure(self, web, *arguments, **more):
        return self.cmake("-S", self.root / "source", "-B", self.root / "build", f"-DLOCKSTEP_WEB={web}",
                          "-DCMAKE_CXX_COMPILER=/usr/bin/c++", *arguments, **more)

    def files(self):
        built = self.cmake("--build", self.root / "build")
        self.assertEqual(built.returncode, 0, built.stdout + built.stderr)
        printed = subprocess.run([self.root / "build" / "small"], text=True, capture_output=True, check=True).stdout
        return {line.split()[0]: line.split()[1:] for line in printed.splitlines()}

    def test_the_page_is_built_in_and_again_only_when_it_has_changed(self):
        done = self.configure("ON")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("Web page: built into small", done.stdout)
        files = self.files()
        self.assertEqual(files["assets/icon-1.png"], ["3", "0"])
        self.assertEqual(files["index.html"][1], "1", "gzip as it was built")
        page = self.root / "build" / "web" / "built_in_page.cpp"
        before = page.stat().st_mtime_ns
        self.assertEqual(self.files(), files)
        self.assertEqual(page.stat().st_mtime_ns, before, "nothing has changed")
        self.write("web/src/index.html", "<!doctype html>" + "<p>more and more and other text</p>")
        self.assertGreater(int(self.files()["index.html"][0]), int(files["index.html"][0]))
        self.assertFalse((self.root / "source" / "web" / "node_modules").exists(), "nothing is written to the source")

    def test_the_quick_starts_page_is_only_bundled(self):
        self.assertEqual(self.configure("ON", "-DLOCKSTEP_WEB_PACKED=OFF").returncode, 0)
        self.assertEqual(self.files()["assets/icon-1.png"], ["5", "0"])
        self.assertIn("-DLOCKSTEP_SHORT_BUILD=ON", (SOURCE / "deploy/quickstart").read_text())
        self.assertIn("set(LOCKSTEP_WEB_PACKED OFF)", (SOURCE / "CMakeLists.txt").read_text())

    def test_a_page_that_does_not_build_says_so(self):
        self.write("web/build.mjs", "throw new Error('half a page');")
        self.assertEqual(self.configure("AUTO").returncode, 0)
        built = self.cmake("--build", self.root / "build")
        self.assertNotEqual(built.returncode, 0)
        self.assertIn("half a page", built.stdout + built.stderr)

    def test_without_nodejs_there_is_no_page_and_configure_says_why(self):
        tools = self.root / "tools"  # all but Node.js
        tools.mkdir()
        for name in ("c++", "cc", "ld", "as", "ar", "ranlib", "make", "ninja", "sh", "uname"):
            if found := shutil.which(name):
                (tools / name).symlink_to(found)
        done = self.configure("AUTO", "-DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF", path=str(tools))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("Web page: none: no Node.js", done.stdout)
        self.assertEqual(self.files(), {})
        self.assertIn("LOCKSTEP_WEB=ON", self.configure("ON", path=str(tools)).stderr)

    def test_where_the_registry_is_out_of_reach_there_is_no_page(self):
        self.package(nothing="1.2.3")
        done = self.configure("AUTO")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("Web page: none: npm ci cannot fetch its packages", done.stdout)
        self.assertEqual(self.files(), {})
        self.assertNotEqual(self.configure("ON").returncode, 0)

    def test_other_packages_are_fetched_by_the_build_and_those_that_went_away_again(self):
        self.assertEqual(self.configure("AUTO").returncode, 0)
        self.assertIn("index.html", self.files())
        self.package(nothing="1.2.3")
        built = self.cmake("--build", self.root / "build")
        self.assertIn("Web page: none: npm ci cannot fetch its packages", built.stdout)
        self.assertEqual(self.files(), {})
        # npm ci has taken away what was there: the former packages are to be fetched, too.
        self.package()
        built = self.cmake("--build", self.root / "build")
        self.assertIn("npm ci fetches its packages", built.stdout)
        self.assertIn("index.html", self.files())

    def test_off_looks_for_nothing(self):
        self.assertIn("Web page: none: LOCKSTEP_WEB is OFF", self.configure("OFF").stdout)
        self.assertEqual(self.files(), {})


if __name__ == "__main__":
    gpu_tests.main()
