#include "job/model/evidence.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

constexpr std::string_view kPySpy = R"(Process 4242: python3 train.py
Python v3.11.2 (/usr/bin/python3.11)

Thread 4250 (idle): "Thread-1"
    wait (threading.py:320)
Thread 4242 (active): "MainThread"
    spin_forever (train.py:12)
    main (train.py:30)
    <module> (train.py:33)
)";

constexpr std::string_view kGdb = R"([Thread debugging using libthread_db enabled]
0x00007f0a1 in select () from /lib/x86_64-linux-gnu/libc.so.6

Thread 2 (Thread 0x7f0 (LWP 12) "gloo"):
#0  0x00007f0b2 in epoll_wait () from /lib/x86_64-linux-gnu/libc.so.6
#1  0x00007f0b3 in gloo::transport::tcp::Loop::run() () from /lib/libgloo.so

Thread 1 (Thread 0x7f1 (LWP 11) "python3"):
#0  0x00007f0a1 in __futex_wait (private=0, word=0x5) at futex.h:146
#1  0x00007f0a2 in ?? ()
#2  gloo::allreduce (opts=...) at allreduce.cc:20
#3  0x00007f0a3 in main ()
#4  0x00007f0a4 in _start ()
[Inferior 1 (process 11) detached]
)";

constexpr std::string_view kEuStack = R"(PID 77 - process
TID 77:
#0  0x00007f4d8 clock_nanosleep
#1  0x00007f4d9 sleep
#2  0x00005581a main
TID 78:
#0  0x00007f4d8 poll
)";

TEST(Evidence, ThePythonFrameIsTheMainThreads) {
    EXPECT_EQ(top_python_frame(kPySpy), "spin_forever (train.py:12)");
    EXPECT_EQ(top_python_frame("Thread 1 (idle)\n    wait (a.py:1)\n    b (a.py:2)\n"),
              "wait (a.py:1)");
    EXPECT_EQ(top_python_frame("Error: Permission denied\n"), "");
    EXPECT_EQ(top_python_frame(""), "");
}

TEST(Evidence, TheNativeFrameIsTheMainThreads) {
    EXPECT_EQ(top_native_frame(kGdb), "__futex_wait < gloo::allreduce < main");
    EXPECT_EQ(top_native_frame(kEuStack), "clock_nanosleep < sleep < main");
    EXPECT_EQ(top_native_frame("ptrace: Operation not permitted.\n#0 nonsense\n"), "");
}

TEST(Evidence, WhatAProgramPrintsCannotFillTheLine) {
    const std::string frame =
        top_native_frame("Thread 1 (x):\n#0  0x1 in \x1b[2J" + std::string(5000, 'a') + " ()\n");
    EXPECT_LE(frame.size(), 1024U);
    EXPECT_EQ(frame.find('\x1b'), std::string::npos);
}

TEST(Evidence, OnlyItsOwnNamesAreNames) {
    EXPECT_TRUE(is_evidence_name("python.txt"));
    EXPECT_TRUE(is_evidence_name("flight-recorder"));
    for (const char* name : {"", ".", "..", "../agent.json", "agent.json", "python.txt/",
                             "PYTHON.TXT", "python.txt.tmp.1"}) {
        EXPECT_FALSE(is_evidence_name(name)) << name;
    }
    const auto folders = evidence_folders(2, 131'071);
    EXPECT_EQ(folders[0] + "/" + folders[1] + "/" + folders[2], "evidence/gen-2/rank-131071");
}

}  // namespace
}  // namespace lockstep
