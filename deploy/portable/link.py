"""Links a program for glibc 2.28 with all else inside: CMake gives the ordinary link command, zig has the linker and
every glibc's symbols.

    link.py --zig 'python3 -m ziglang' -- c++ … main.o -o program liblockstep_agent.a /usr/lib/…/libssl.so …

Objects and static libraries are taken as they are (GCC compiled them; libstdc++ goes in with them). In the place of a
shared library its static one is linked; spdlog and fmt, which Debian has none of, are in spdlog_static.cpp. Exit status:
the linker's, or 1 with a line that says what there is no static library of.
"""

import pathlib
import re
import shlex
import subprocess
import sys

GLIBC = "2.28"
OWN = {"pthread", "dl", "m", "rt", "c", "resolv"}  # glibc's: they stay shared
COMPILED_IN = {"spdlog", "fmt"}
# As the ordinary programs are linked, and stripped.
FLAGS = ["-pie", "-s", "-Wl,--gc-sections", "-Wl,-z,relro,-z,now", "-Wl,--build-id=sha1", "-Wl,--wrap=posix_spawn",
         "-Wl,--wrap=posix_spawnp"]  # glibc_2_28.cpp


def static_library(compiler, name):
    found = subprocess.run([compiler, f"-print-file-name=lib{name}.a"], capture_output=True, text=True, check=True).stdout.strip()
    if not pathlib.Path(found).is_absolute():
        sys.exit(f"link.py: there is no static library of {name} (lib{name}.a)")
    return found


def rewritten(compiler, words):
    """What zig is given of the ordinary command's words."""
    out, libraries = [], []
    words = iter(words)
    for word in words:
        shared = re.fullmatch(r".*/lib([\w+-]+)\.so[.\d]*", word)
        name = shared.group(1) if shared else word[2:] if word.startswith("-l") else None
        if word == "-o":
            out += [word, next(words)]
        elif name is not None:
            if name not in OWN | COMPILED_IN:
                libraries.append(static_library(compiler, name))
        elif word.endswith(".o"):
            out.append(word)
        elif word.endswith(".a"):
            libraries.append(word)
    return out + libraries


def main():
    split = sys.argv.index("--")
    zig = shlex.split(sys.argv[sys.argv.index("--zig") + 1])
    compiler, *words = sys.argv[split + 1:]
    inputs = rewritten(compiler, words)
    # LLVM's unwinder in the place of libgcc's, which asks a glibc of 2.35 for tables.
    command = [*zig, "cc", "-target", f"x86_64-linux-gnu.{GLIBC}", *FLAGS, *inputs, static_library(compiler, "stdc++"), "-lunwind",
               static_library(compiler, "gcc"), "-lpthread", "-ldl", "-lm"]
    sys.exit(subprocess.run(command, check=False).returncode)


if __name__ == "__main__":
    main()
