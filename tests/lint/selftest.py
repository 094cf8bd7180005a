# size: what each lint refuses and what it passes, one test for each
"""Each lint can fail: it must refuse its bad example with the words given, and pass the good one."""

import contextlib
import copy
import importlib
import io
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import machine

HERE = pathlib.Path(__file__).resolve().parent
GOOD = {
    "job/base/text.hpp": "#pragma once\n\n#include <string>\n",
    "job/base/text.cpp": '#include "job/base/text.hpp"\n',
    "job/model/spec/spec.cpp": '#include "job/base/text.hpp"\n',
    "deploy/run": "#!/bin/bash\necho ok\n",
}


class Lints(unittest.TestCase):
    def run_lint(self, lint, extra):
        """In this process: a Python for each of 400 examples takes longer than all of the lints."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in {**GOOD, **extra}.items():
                path = root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(text if isinstance(text, bytes) else text.encode())
            (root / ".clang-format").write_bytes((HERE / "../../.clang-format").read_bytes())
            said, code = io.StringIO(), None
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), \
                    mock.patch.object(sys, "argv", [f"{lint}.py", "--root", str(root)]):
                try:
                    code = importlib.import_module(lint).main()
                except SystemExit as end:
                    code = end.code
            return code or 0, said.getvalue()

    def refused(self, lint, name, text, words):
        code, out = self.run_lint(lint, {name: text})
        if code == 77:
            self.skipTest(out.strip())
        self.assertEqual(code, 1, f"{lint} let it pass: {text!r}\n{out}")
        self.assertIn(words, out)

    def passed(self, lint, name, text):
        code, out = self.run_lint(lint, {name: text})
        if code == 77:
            self.skipTest(out.strip())
        self.assertEqual(code, 0, out)

    def test_batches(self):
        def clash(one, two, words):
            files = {"job/base/CMakeLists.txt": "lockstep_library(base LEVEL 0\n  SOURCES text.cpp one.cpp two.cpp\n  HEADERS text.hpp)\n",
                     "job/base/one.cpp": f"namespace lockstep {{\nnamespace {{\n{one}\n}}\n}}\n",
                     "job/base/two.cpp": f"namespace lockstep {{\nnamespace {{\n{two}\n}}\n}}\n"}
            code, out = self.run_lint("batches", files)
            self.assertEqual(code, 1 if words else 0, out)
            self.assertIn(words or "0 problems", out)

        clash("constexpr int kMost = 1;", "constexpr auto kMost = sizeof(int);",
              "job/base/two.cpp:3: base has kMost already: job/base/one.cpp:3")
        clash("struct Row {\n    int a;\n};", "class Row final {\n};", "base has Row already")
        clash("int f(int a, const std::string& b) {\n    return a;\n}", "int f(int x,\n      const std::string& y = std::string(1, 2)) {\n    return 2;\n}",
              "base has f(int,conststd::string&) already")
        clash("int f(int a) {\n    return a;\n}", "int f(long a) {\n    return 2;\n}", "")
        clash("int f() {\n    int a = 1;\n    return a;\n}\nint a = 1;", "int g() {\n    int a = 1;\n    return a;\n}", "")
        clash("struct Row;", "struct Row;", "")
        clash("struct Row {\n    int a;\n};", "using Row = std::vector<int>;", "base has Row already")
        clash("using Row = int;", "using Row = long;", "base has Row already")
        clash("using Row = int;", "using Row = int;", "")
        clash("}\nusing other::kDone;\nnamespace {", "constexpr int kDone = 1;", "base has kDone already")
        clash("using other::kDone;", "using other::kDone;", "")
        clash("using ::other::kDone;", "using other::kDone;", "")
        same = "namespace lockstep {\nnamespace {\nconstexpr int kMost = 1;\n}\n}\n"
        code, out = self.run_lint("batches", {"tests/unit/base/CMakeLists.txt": "lockstep_test(base SOURCES one.cpp two.cpp\n  DEPS x)\n",
                                              "tests/unit/base/one.cpp": same, "tests/unit/base/two.cpp": same})
        self.assertEqual(code, 1, out)
        self.assertIn("base has kMost already", out)
        clash("}\nint kShown = 1;\nnamespace {", "int kShown = 1;", "")

    def test_batches_finds_every_source_of_a_target(self):
        same = "namespace lockstep {\nnamespace {\nconstexpr int kMost = 1;\n}\n}\n"

        def told(lists, words, other="job/base/two.cpp"):
            code, out = self.run_lint("batches", {"job/base/CMakeLists.txt": lists, "job/base/one.cpp": same, other: same})
            self.assertEqual(code, 1, out)
            self.assertIn(words, out)

        # Each was left out, and what it clashes with passed.
        clashes = "job/base/two.cpp:3: base has kMost already: job/base/one.cpp:3"
        told("lockstep_test(base SOURCES one.cpp ${PROJECT_SOURCE_DIR}/job/rank/two.cpp\n  DEPS x)\n",
             "job/rank/two.cpp:3: base has kMost already", "job/rank/two.cpp")
        told("lockstep_test(base SOURCES one.cpp ../rank/two.cpp)\n", "job/rank/two.cpp:3: base has kMost already", "job/rank/two.cpp")
        told("set(sources no.cpp)\nif(X)\n  set(sources two.cpp)\nendif()\nlockstep_library(base LEVEL 0 SOURCES one.cpp ${sources})\n", clashes)
        told("set(sources one.cpp)\nset(sources ${sources} two.cpp)\nlockstep_library(base LEVEL 0 SOURCES ${sources})\n", clashes)
        told("set(sources one.cpp)\nlist(APPEND sources two.cpp)\nlockstep_library(base LEVEL 0 SOURCES ${sources})\n", clashes)
        # What cannot be read is told, not passed over.
        told("lockstep_library(base LEVEL 0 SOURCES one.cpp three.cpp)\n", "base has a source that is not found: three.cpp")
        told("lockstep_library(base LEVEL 0 SOURCES one.cpp ${elsewhere})\n", "base has a source that is not found: ${elsewhere}")

    def test_caps(self):
        name = "daemon/http/a.hpp"
        self.refused("caps", name, "inline constexpr std::size_t kNameBytes = 5;\n",
                     "a.hpp:1: kNameBytes belongs in daemon/http/http_limits.hpp")
        self.refused("caps", name, "inline constexpr auto kAnswer = std::chrono::seconds{5};\n", "kAnswer belongs in")
        self.refused("caps", name, "inline constexpr std::chrono::seconds kAnswer{5};\n", "kAnswer belongs in")
        self.refused("caps", name, "struct A {\n    static constexpr int kJobsOfUser = 5;\n};\n", "a.hpp:2: kJobsOfUser belongs in")
        self.refused("caps", "daemon/http/base/ws_frames.hpp", "\n", "has no kControlBytes any more")
        self.passed("caps", name, "inline constexpr std::size_t kColours = 5;\n")
        common = "job/base/limits.hpp"
        for folder, home in (("job/agent/ranks/", common), ("job/base/", common), ("job/nccl_test/", common), ("job/new/", common),
                             ("job/async/", "job/async/async_limits.hpp"), ("job/cli/", "job/cli/cli_limits.hpp"),
                             ("job/collective/", "job/collective/collective_limits.hpp"), ("job/model/spec/", "job/model/limits/model_limits.hpp"),
                             ("job/rank/c/", "job/rank/rank_limits.hpp"), ("job/trainer/", "job/trainer/trainer_limits.hpp"),
                             ("job/trainer/data/", "job/trainer/trainer_limits.hpp"), ("daemon/backup/", "daemon/backup/backup_limits.hpp"),
                             ("daemon/control/jobs/", common), ("daemon/http/auth/", "daemon/http/http_limits.hpp"), ("daemon/lockstepd/", common),
                             ("daemon/store/", common), ("daemon/telemetry/series/", "daemon/telemetry/telemetry_limits.hpp"),
                             ("scheduler-integration/slurm/", common), ("scheduler-integration/local/", common),
                             ("scheduler-integration/exec/", "scheduler-integration/exec/exec_limits.hpp")):
            self.refused("caps", folder + "a.cpp", "constexpr std::size_t kNameBytes = 5;\n", f"a.cpp:1: kNameBytes belongs in {home}\n")
            self.refused("caps", folder + "a.cpp", "void f() {\n    constexpr int kMost = 5;\n}\n", "a.cpp:2: kMost belongs in")
            self.refused("caps", folder + "a.cpp", "constexpr auto kAnswer = 5s;\n", "kAnswer belongs in")
            self.refused("caps", folder + "a.hpp", "inline constexpr std::chrono::seconds kAnswer{5};\n", "kAnswer belongs in")
            self.passed("caps", folder + "a.cpp", "constexpr std::size_t kNameBytes = limits::kTextBytes;\nconstexpr int kColours = 5;\n")
        self.refused("caps", "job/agent/keeper.cpp", "constexpr std::size_t kProcessStatBytes = 5;\n", "has no kEndLook any more")
        self.refused("caps", "job/cli/submit.cpp", "\n", "has no kFirstPause any more")
        limit = "inline constexpr std::size_t kNameBytes = 5;\n"
        for home in (common, "job/cli/cli_limits.hpp", "job/trainer/trainer_limits.hpp"):
            self.passed("caps", home, limit)
        code, out = self.run_lint("caps", {common: limit, "job/cli/cli_limits.hpp": "\n" + limit})
        self.assertEqual(code, 1, out)
        self.assertIn("job/cli/cli_limits.hpp:2: kNameBytes is in job/base/limits.hpp already", out)

    def test_names(self):
        self.refused("names", "tests/a.py", "def f():\n    return ctypes.CDLL('x')\n", "tests/a.py:2: undefined name 'ctypes'")
        self.refused("names", "tests/run", "#!/usr/bin/env python3\nprint(none)\n", "tests/run:2: undefined name 'none'")
        self.refused("names", "tests/a.py", "def f(:\n", "tests/a.py:1: ")
        self.passed("names", "tests/a.py", "import ctypes\n\n\ndef f():\n    return ctypes.CDLL(__file__)\n")
        self.passed("names", "tests/a.py", "import os\n")

    def test_machine(self):
        folder = "daemon/control/machine/"
        self.refused("machine", folder + "a.cpp", "#include <boost/asio.hpp>\n", "reaches <boost/asio.hpp>")
        self.refused("machine", folder + "a.cpp", '#include "daemon/store/store.hpp"\n', "reaches daemon/store/store.hpp")
        self.refused("machine", folder + "a.cpp", "auto f() { return std::chrono::steady_clock::now(); }\n",
                     "machine/a.cpp:1: asks the world: steady_clock::now")
        self.refused("machine", folder + "a.cpp", '#include "job/base/files.hpp"\nauto f() { return read_file("x", 1); }\n',
                     "machine/a.cpp:2: asks the world: read_file")
        examples = ("steady_clock::now()", "const SystemClock clock;", "f(wall_seconds());", "std::time(&now)", "now = time(nullptr);", "x = ::time(0);",
                    "clock_gettime(CLOCK_REALTIME, &now)", "gettimeofday(&now, nullptr)", "std::this_thread::yield()",
                    'std::getenv("HOME")', 'secure_getenv("HOME")', "char** all = environ;", "std::random_device seed;", "getrandom(&x, 1, 0)",
                    "make_job_id(now)", "std::rand()", "srand(1)", "read_file(path, 1)", "write_file(path, text)", 'std::fopen("x", "r")',
                    "::open(path, 0)", "std::filesystem::exists(path)", "co_await f();", "co_return;", "co_yield 1;")
        for text in examples:
            self.refused("machine", folder + "a.cpp", f"auto f() {{ {text} }}\n", "machine/a.cpp:1: asks the world: ")
        for pattern in machine.ASKS:
            self.assertTrue(any(re.search(pattern, text) for text in examples), f"no example of {pattern}")
        for text in ("at.wall_seconds()", "double wall_seconds() const;", "std::time_t t;", "run_time(0)", "at.time(0)", "std::filesystem::path p;",
                     "operand(1)", "at.now", "link.open(1)", "known_environ(1)"):
            self.passed("machine", folder + "a.cpp", f"auto f() {{ {text} }}\n")
        code, out = self.run_lint("machine", {folder + "a.hpp": '#include "job/model/wait.hpp"\n',
                                              "job/model/wait.hpp": '#include "job/async/sleep.hpp"\n'})
        self.assertEqual(code, 1, out)
        self.assertIn("reaches job/async/sleep.hpp by job/model/wait.hpp", out)
        self.passed("machine", folder + "a.cpp", '#include "job/base/text.hpp"\n// steady_clock::now() is its driver\'s\n')
        node = "job/agent/machine/"
        self.refused("machine", node + "a.cpp", "#include <sys/wait.h>\n", "reaches <sys/wait.h>")
        self.refused("machine", node + "a.cpp", '#include "job/agent/ranks/rank_group.hpp"\n', "reaches job/agent/ranks/rank_group.hpp")
        self.refused("machine", node + "a.cpp", "auto f() { return steady_clock::now(); }\n", "machine/a.cpp:1: asks the world: steady_clock::now")
        self.passed("machine", node + "a.cpp", '#include "job/model/wire/wire.hpp"\n')

    def test_layers(self):
        self.refused("layers", "job/base/a.cpp", '#include "job/model/spec/spec.hpp"\n',
                     "job/base/a.cpp:1: level 0 may not include level 1")
        self.refused("layers", "job/agent/a.cpp", '#include "job/rank/client.hpp"\n',
                     "level 2 may not include level 2")
        self.refused("layers", "job/cli/a.cpp", '#include "daemon/store/store.hpp"\n',
                     "job may not include daemon")
        self.refused("layers", "scheduler-integration/local/a.cpp",
                     '#include "daemon/control/base/control.hpp"\n', "may not include daemon")
        self.refused("layers", "job/base/a.cpp", '#include "text.hpp"\n', "not a path from the root")
        self.refused("layers", "daemon/control/a.cpp", "#include <SQLiteCpp/Database.h>\n",
                     "daemon/store only")
        self.refused("layers", "job/base/text.cpp", '#include <string>\n#include "job/base/text.hpp"\n',
                     'job/base/text.cpp:1: "job/base/text.hpp" comes first')
        self.refused("layers", "job/base/text.cpp", "int a;\n", '"job/base/text.hpp" comes first')
        self.refused("layers", "job/fresh/a.cpp", "int a;\n", "belongs to no level")
        one_way = {"job/agent/node/a.hpp": '#include "job/agent/kv/b.hpp"\n', "job/agent/c.hpp": '#include "job/agent/kv/b.hpp"\n'}
        code, out = self.run_lint("layers", {**one_way, "job/agent/kv/b.hpp": "int b;\n"})
        self.assertEqual(code, 0, out)
        code, out = self.run_lint("layers", {**one_way, "job/agent/kv/b.hpp": '#include "job/agent/gpu/d.hpp"\n',
                                             "job/agent/gpu/d.hpp": '#include "job/agent/node/a.hpp"\n'})
        self.assertEqual(code, 1, out)
        self.assertIn("d.hpp:1: job/agent/node/a.hpp closes a circle of job/agent/gpu, job/agent/kv, job/agent/node", out)
        self.assertNotIn("job/agent/c.hpp", out)
        for text in ("// Slurm ends it", 'if (scheduler.name() == "x") {', 'if ("x" != context_.scheduler.name()) {',
                     'if (scheduler().name()\n    .starts_with("x")) {', "a = scheduler->title() == b;", "a = at.scheduler_title != b;",
                     'name = "local";', '#include "scheduler-integration/local/agent_process.hpp"',
                     "// sbatch takes no more", "int kSbatchBytes = 4;", "int most_squeue_rows();", 'run("scontrol");', "signed by munge",
                     "// by srun", "int srun_pid;", "int kSrunPid;", "SrunPid pid;", 'run("sinfo");', "const int slurm_id = 1;",
                     "job.slurm.account", "spec.slurm = {}", "f(spec.slurmctld.x)", '"--on-slurm-node-failure"', "qsub"):
            self.refused("layers", "daemon/control/a.cpp", text + "\n", "any scheduler may be there")
        for text in ("view.account = job.spec.slurm.account;", '"(--on-slurm-node-fail)"', "ProcessRunner programs;", "out.scheduler = scheduler.name();",
                     "auto text = std::string{scheduler.title()} + \" ends it\";", "class Allocation;", '#include "scheduler-integration/cluster.hpp"',
                     'host == "localhost"', "struct ClassInfo;", "class JobSubmission;"):
            self.passed("layers", "daemon/control/a.cpp", text + "\n")
        self.passed("layers", "daemon/http/a.cpp", "// Slurm's token\n")
        self.passed("layers", "daemon/lockstepd/main.cpp", '#include "job/cli/manual.hpp"\n')
        self.passed("layers", "tests/unit/a.cpp", '#include "daemon/control/base/control.hpp"\n')

    def test_co_await(self):
        for text, words in (
                ("co_await post([name] { return name; });", "a lambda"),
                ("auto x = co_await send(Request{a, b});", "temporary Request{"),
                ("const auto x = co_await send(\n        {a, b});", "braced argument"),
                ("if (co_await ready()) {\n    }", "in a condition"),
                ("if (a) {\n    } else if (!co_await ready(b)) {\n    }", "in a condition"),
                ("while (a && co_await ready()) {\n    }", "in a condition"),
                ("switch (co_await kind()) {\n    }", "in a condition"),
                ("LOCKSTEP_CO_TRY(co_await f(b));", "in a condition"),
                ("co_return a ? co_await f(b) : c;", "in a choice"),
                ("if (const int x = 1; x == co_await f()) {\n    }", "in a condition"),
                ("co_return co_await f(std::vector<std::string>{a});", "std::vector<std::string>{")):
            self.refused("co_await", "job/async/a.cpp", f"void f() {{\n    {text}\n}}\n", words)
        for text in ("auto x = co_await send(std::move(request));",
                     "co_await sleep(timer, std::chrono::seconds{5});",
                     "co_await f(table[index], \"[] {\");  // co_await g([] {});",
                     "if (const bool x = co_await ready(); x) {\n        log(Request{a});\n    }",
                     "if (const auto x = co_await ready()) {\n    }",
                     "auto task = [this] { return 1; };\n    co_await post(task);"):
            self.passed("co_await", "job/async/a.cpp", f"void f() {{\n    {text}\n}}\n")

    def test_sizes(self):
        self.refused("sizes", "job/base/a.cpp", "int a;\n" * 601, "601 lines")
        self.refused("sizes", "job/base/a.cpp", "int a;\n" * 401, "needs `size: reason`")
        self.refused("sizes", "job/base/a.cpp",
                     "namespace x {\nvoid f(int a) {\n" + "    a++;\n" * 100 + "}\n}\n",
                     "job/base/a.cpp:2: function of 102 lines")
        reason = "// size: one table is one file\n"
        self.passed("sizes", "job/base/a.cpp", reason + "int a;\n" * 400)
        self.refused("sizes", "job/base/a.cpp", reason + "int a;\n" * 399, "a.cpp:1: 400 lines need no `size: reason`")
        self.refused("sizes", "job/base/a.py", "a = 1\n# size: one table is one file\n", "a.py:2: 2 lines need no")
        self.passed("sizes", "job/base/a.cpp", 'f("// size: one table is one file");\n')
        self.passed("sizes", "job/base/a.cpp", "struct A {\n" + "    void f() { g(); }\n" * 100 + "};\n")

    def test_sizes_of_classes_and_folders(self):
        def of(methods, members, kind="class"):
            return ("#pragma once\nnamespace x {\n" + kind + " Big final : public Base<int> {\n  public:\n    Big(const Big&) = delete;\n"
                    "    using Then = std::function<void(int)>;\n    enum class Kind { a, b };\n"
                    "    static constexpr int kMost = 3;\n"
                    + "    template <class T>\n    bool f(int a = 1) const { if (a) { return true; } return {}; }\n" * methods
                    + "    std::function<void(int)> done_{[] { f(); }};\n" * members + "};\n}\n")

        self.passed("sizes", "job/base/a.hpp", of(40, 20))
        self.refused("sizes", "job/base/a.hpp", of(41, 20), "a.hpp:3: Big has 41 methods; at most 40")
        self.refused("sizes", "job/base/a.hpp", of(10, 21), "Big has 21 members; at most 20")
        self.passed("sizes", "job/base/a.hpp", of(9, 30, "struct"))  # a record
        self.refused("sizes", "job/base/a.hpp", "struct Outer {\n    int a;\n" + of(41, 0) + "};\n", "Big has 41 methods")
        with mock.patch.dict("sizes.CEILINGS", {"job/base/a.hpp Big": {"methods": 45}}):
            self.passed("sizes", "job/base/a.hpp", of(45, 3))
            self.refused("sizes", "job/base/a.hpp", of(46, 3), "46 methods; at most 45, as it had")
            self.refused("sizes", "job/base/a.hpp", of(44, 3), "its ceiling in sizes.py is 45 and goes with it")
            self.refused("sizes", "job/base/a.hpp", of(40, 3), "goes with it: 40 need none")
            self.refused("sizes", "job/base/a.hpp", "class Small {};\n", "a ceiling for Big, which is not here")
        sources = {f"job/async/{number}.cpp": "int a;\n" for number in range(31)}
        code, said = self.run_lint("sizes", sources)
        self.assertEqual(code, 1, said)
        self.assertIn("job/async: 31 units; at most 30", said)
        sources.popitem()
        self.assertEqual(self.run_lint("sizes", sources), (0, mock.ANY))

    def test_words(self):
        for text, words in (("a\tb\n", "a tab"), ("a \n", "blank at the end"),
                            ("path = /wor" + "k/x\n", "path of one machine"),
                            ("curl https://pypi" + ".org\n", "host name"),
                            ("// TO" + "DO: later\n", "without (#issue)"),
                            ("no newline", "no newline"), (b"\xff\xfe\n", "not UTF-8")):
            self.refused("words", "job/base/note.md", text, words)
        self.passed("words", "job/base/note.md", "// TO" + "DO(#12): later\n")

    def test_format(self):
        self.refused("format", "job/base/a.cpp", "int  f( ){return 1;}\n", "not formatted")
        self.passed("format", "job/base/a.cpp", "int f();\n")

    def test_shell(self):
        self.refused("shell", "deploy/bad", "#!/bin/sh\nrm $1/*\n", "SC2086")
        self.refused("shell", "deploy/bad.sh", "#!/bin/bash\nif true; then\n", "syntax error")

    def test_documents(self):
        for text, words in (("See [it](job/none.md).\n", "the link job/none.md leads nowhere"),
                            ("See [below](#no-such).\n# Such\n", "no heading for #no-such"),
                            ("`job/base/none.hpp` does it.\n", "there is no job/base/none.hpp"),
                            ("`none.hpp` does it.\n", "there is no file none.hpp"),
                            ("```sh\nlockstep submit deploy/none.json\n```\n", "there is no deploy/none.json")):
            self.refused("documents", "README.md", text, words)
        self.refused("documents", "deploy/README.md", "`job/base/none.hpp`\n", "deploy/README.md:1")
        self.refused("documents", "job/coming-from.md", "`job/base/none.hpp`\n", "job/coming-from.md:1")
        self.refused("documents", "job/README.md", "`base/none.hpp`\n", "there is no base/none.hpp")
        self.refused("documents", "web/README.md", "`none.ts`\n", "there is no file none.ts")
        for text in ("`deploy/run --none`\n", "```sh\nx; sudo lockstep/deploy/run --none # it\n```\n"):
            self.refused("documents", "README.md", text, "deploy/run has no --none")
        for name, text in (("README.md", "As desi" + "gn §4 says.\n"), ("job/base/a.cpp", "// The desi" + "gn's table.\n"),
                           ("tests/run", "# Revi" + "ew finding S1\n"), ("web/a.tsx", "// (rese" + "arch: no Host)\n")):
            self.refused("documents", name, text, "not in the repository")
        for text, words in (("`no_such_thing` and `no_such_thing()`", "nothing in the tree is called no_such_thing()"),
                            ("`kNoSuch`", "nothing in the tree is called kNoSuch"), ("`Text::none`", "nothing in the tree is called Text::none"),
                            ("x `job/base/text.hpp` (`split`, `trim_all`)", "there is no trim_all in job/base/text.hpp"),
                            ("x `base/text.hpp` (`Text::join()`)", "there is no join in base/text.hpp")):
            code, out = self.run_lint("documents", {"job/README.md": text + "\n", "job/base/text.hpp": "class Text { int split; };\n",
                                                    "job/base/a.cpp": "int none, trim_all, join;\n", "tests/lint/a.py": "no_such_thing = kNoSuch\n"})
            self.assertEqual(code, 1, out)
            self.assertIn(words, out)
        code, out = self.run_lint("documents", {
            "job/README.md": "`text_of`, `text_of()`, `kMost`, `Text::split()`, `base/text.cpp` (`split`), `relabel_config`, `NONE_SUCH`, `a_b=c`\n",
            "job/base/text.hpp": "class Text { int split, text_of, kMost; };\n"})
        self.assertEqual(code, 0, out)
        self.refused("documents", "README.md", "One.\n" * 201, "over 200 lines")
        walk = "## One lost node\n\nby `h.cpp`\n\n" + "".join(f"| lost | `{one}.cpp` (`{one}`), `a.cpp` |\n" for one in "abcdef")
        sources = {f"job/base/{one}.cpp": f"int {one};\n" for one in "abcdefgh"}
        for text, right in ((walk + "\n## On\n| `g.cpp` |\n", True), (walk + "| ends | `g.cpp` |\n", False)):
            code, out = self.run_lint("documents", {"daemon/README.md": text, **sources})
            self.assertEqual(code, 0 if right else 1, out)
            self.assertEqual("a reader needs 7 files for it, more than 6" in out, not right, out)
        self.passed("documents", "README.md", "# A flat_text of _it_\n[up](#a-flat_text-of-it)\n")
        self.passed("documents", "README.md", "# On it\n[on](#on-it) [text](job/base/text.hpp) `job/base/text.hpp`, "
                    "`text.cpp`\n```sh\ndeploy/run; ls <data-dir>/tls deploy\n```\n")

    def test_openapi(self):
        import openapi
        number = {"type": "integer", "description": "Seconds since then."}
        answer = {"200": {"description": "OK", "content": {"application/json": {
            "schema": {"$ref": "#/components/schemas/A"}, "example": {"age": 1}}}}}
        good = {"openapi": "3.1.0", "info": {"title": "a", "version": "1"}, "tags": [{"name": "t", "description": "T."}],
                "paths": {"/a": {"get": {"operationId": "a", "summary": "A.", "tags": ["t"], "responses": answer}}},
                "components": {"schemas": {"A": {"type": "object", "properties": {"age": number}}}}}
        self.assertEqual(openapi.check(good), [])

        def refused(words, change):
            document = copy.deepcopy(good)
            change(document["paths"]["/a"]["get"], document["components"]["schemas"]["A"]["properties"])
            errors = openapi.check(document)
            self.assertTrue(any(words in error for error in errors), (words, errors))

        refused("has no description", lambda operation, fields: fields.update(b={"type": "string"}))
        refused("has no unit", lambda operation, fields: fields.update(
            b={"type": "array", "items": {"type": "number"}, "description": "Some."}))
        refused("has no tag", lambda operation, fields: operation.pop("tags"))
        refused("the tag u is not described", lambda operation, fields: operation.update(tags=["u"]))
        refused("304 has no header ETag", lambda operation, fields: operation["responses"].update({"304": {"description": "A."}}))
        refused("503 has no header Retry-After", lambda operation, fields: operation["responses"].update({"503": {
            "description": "A.", "content": {"application/problem+json": {"schema": {"type": "object"}}}}}))
        refused("header A has no description", lambda operation, fields: operation["responses"]["200"].update(
            headers={"A": {"schema": {"type": "string"}}}))
        refused("header A is a number", lambda operation, fields: operation["responses"]["200"].update(
            headers={"A": {"schema": {"type": "integer"}, "description": "Some."}}))
        refused("200 has no example", lambda operation, fields: operation["responses"]["200"]["content"]
                ["application/json"].pop("example"))
        refused("its body has no example", lambda operation, fields: operation.update(
            requestBody={"content": {"application/json": {"schema": {"type": "object"}}}}))
        refused("both what may be sent and what is answered", lambda operation, fields: operation.update(
            requestBody={"content": {"application/json": {
                "schema": {"$ref": "#/components/schemas/A"}, "example": {}}}}))

    def test_a_source_that_needs_its_neighbours_include_is_found(self):
        """tests/support/compile_alone.py with real compilers: the batch compiles, one of its two sources does not."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "CMakeLists.txt").write_text(
                "cmake_minimum_required(VERSION 3.25)\nproject(t LANGUAGES CXX)\nset(CMAKE_EXPORT_COMPILE_COMMANDS ON)\n"
                "add_library(t STATIC one.cpp two.cpp)\nset_target_properties(t PROPERTIES UNITY_BUILD ON)\nadd_library(u STATIC three.cpp)\n")
            (root / "one.cpp").write_text("#include <string>\nstd::string one() { return {}; }\n")
            (root / "two.cpp").write_text("std::string two() { return {}; }\n")
            (root / "three.cpp").write_text("int three() { return 3; }\n")
            build = root / "build"
            for command in (["cmake", "-G", "Ninja", "-S", root, "-B", build], ["cmake", "--build", build]):
                run = subprocess.run(command, capture_output=True, text=True, check=False)
                self.assertEqual(run.returncode, 0, run.stdout + run.stderr)

            def alone(files, seconds="60"):
                run = subprocess.run([sys.executable, "-B", HERE / "../support/compile_alone.py", build, seconds, "2"], cwd=root,
                                     input="\n".join(files), capture_output=True, text=True, check=False)
                return run.returncode, run.stdout + run.stderr

            self.assertEqual(alone(["one.cpp", "three.cpp", "no.cpp"]), (0, "sources by themselves: 2 of 2\n"))
            code, out = alone(["one.cpp", "two.cpp", "three.cpp"])
            self.assertEqual(code, 1, out)
            self.assertIn("two.cpp does not compile by itself", out)
            self.assertNotIn("one.cpp does not", out)
            self.assertEqual(alone(["two.cpp"], "0"), (0, "sources by themselves: 0 of 1; no time for the others\n"))

    def test_the_inner_loop_leaves_out_what_passed_and_cannot_have_changed(self):
        """tests/support/unchanged.py: a program, one that names a library, one of two parts, and a file that a test reads."""
        with tempfile.TemporaryDirectory() as folder:
            root, tool = pathlib.Path(folder).resolve(), pathlib.Path("tests/support/unchanged.py")
            build = root / "build"
            (root / tool).parent.mkdir(parents=True)
            shutil.copy(HERE.parents[1] / tool, root / tool)
            (root / ".gitignore").write_text("/build/\n")
            (root / "fixture.txt").write_text("as it was")
            (build / "tests").mkdir(parents=True)
            (build / "tests/unit-programs").write_text("test_a 0 1\ntest_b 0 2\ntest_b 1 2\ntest_c 0 1\n")
            (build / "lib.so").write_bytes(b"\x7fELF one")
            for name, text in (("test_a", b"a"), ("test_b", b"b"), ("test_c", b"\0%s/lib.so\0" % str(build).encode())):
                (build / "tests" / name).write_bytes(text)
            subprocess.run(["git", "init", "-q", root], check=True)

            def run(verb, text=""):
                return subprocess.run([sys.executable, "-B", root / tool, build, verb], input=text, capture_output=True, text=True, check=True).stdout

            def ran(**words):
                lines = [f" {i}/4 Test  #{i}: quick.{name[:-1]}.{name[-1]} ......   {word}    0.1 sec" for i, (name, word) in enumerate(words.items())]
                run("passed", "\n".join(lines))

            def left_out():
                option, *pattern = run("skip").split("\n") + [""]
                return [name for name in ("test_a", "test_b", "test_c") if option == "-E" and re.match(pattern[0], f"quick.{name}.0")]

            self.assertEqual(left_out(), [])
            ran(test_a0="Passed", test_b0="Passed", test_b1="***Failed", test_c0="Passed")
            self.assertEqual(left_out(), ["test_a", "test_c"])
            ran(test_b0="Passed", test_b1="Passed")
            self.assertEqual(left_out(), ["test_a", "test_b", "test_c"])
            (build / "lib.so").write_bytes(b"\x7fELF two")
            self.assertEqual(left_out(), ["test_a", "test_b"])
            (build / "tests/test_a").write_bytes(b"another")
            self.assertEqual(left_out(), ["test_b"])
            (root / "some.cpp").write_text("int a;")  # it counts where it is compiled
            (root / "web/src").mkdir(parents=True)
            (root / "web/src/page.ts").write_text("")
            self.assertEqual(left_out(), ["test_b"])
            (root / "fixture.txt").write_text("as it is")
            self.assertEqual(left_out(), [])
            (root / "fixture.txt").write_text("as it was")
            self.assertEqual(left_out(), ["test_b"])
            ran(test_b0="***Failed", test_b1="Passed")  # with --all, say
            self.assertEqual(left_out(), [])
            ran(test_b0="Passed", test_b1="Passed")
            self.assertEqual(left_out(), ["test_b"])
            shutil.rmtree(root / ".git")  # as of an unpacked archive
            self.assertEqual(left_out(), [])
            ran(test_a0="Passed")

    def test_an_empty_tree_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            run = subprocess.run([sys.executable, "-B", HERE / "layers.py", "--root", folder],
                                 capture_output=True, text=True, check=False)
            self.assertEqual(run.returncode, 1)
            self.assertIn("found nothing to check", run.stdout)


if __name__ == "__main__":
    unittest.main()
