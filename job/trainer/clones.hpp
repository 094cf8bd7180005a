// LOCKSTEP_CLONES in front of a loop's function: for the sources of kernels only.
#pragma once

// One binary serves every x86-64: the dynamic linker picks the copy for this machine. Not under a
// sanitizer, whose runtime is not up yet when the linker asks which copy to take.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define LOCKSTEP_CLONES \
    __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define LOCKSTEP_CLONES
#endif
