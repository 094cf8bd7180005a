// What Lockstep uses of NCCL's and the CUDA driver's C interfaces, which are stable: declared here,
// so that the programs are built without either and load both where they are used.
// tests/unit/collective/nccl_header_test.cpp holds it against nccl.h where there is one.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::nccl {

using Comm = struct OpaqueComm*;
struct UniqueId {
    char internal[128];
};
enum Result : int {
    kSuccess = 0,
    kUnhandledCudaError = 1,
    kSystemError = 2,
    kInternalError = 3,
    kInvalidArgument = 4,
    kInvalidUsage = 5,
    kRemoteError = 6,
    kInProgress = 7,
};
enum Type : int { kU8 = 1, kI32 = 2, kI64 = 4, kF16 = 6, kF32 = 7, kF64 = 8, kBf16 = 9 };
enum Op : int { kSum = 0, kProd = 1, kMax = 2, kMin = 3, kAvg = 4 };

// ncclConfig_t as it was in 2.14: later versions take it, by its size and version, and do as they
// do by default in what came after.
struct Config {
    std::size_t size = sizeof(Config);
    unsigned int magic = 0xcafebeef;
    unsigned int version = 21400;
    int blocking = 0;
};
inline constexpr int kShrinkAbort = 1;  // NCCL_SHRINK_ABORT

// ncclCommInitRankConfig and non-blocking communicators: 2.14; faults of theirs were mended until
// 2.18.
inline constexpr int kOldest = 21800;
inline constexpr int kScalable = 22300;

// A stream is a cudaStream_t, a CUstream.
struct Api {
    Result (*get_version)(int*) = nullptr;
    Result (*get_unique_id)(UniqueId*) = nullptr;
    Result (*comm_init_rank_config)(Comm*, int, UniqueId, int, Config*) = nullptr;
    Result (*comm_init_rank_scalable)(Comm*, int, int, int, UniqueId*, Config*) = nullptr;  // 2.23
    Result (*comm_finalize)(Comm) = nullptr;
    Result (*comm_destroy)(Comm) = nullptr;
    Result (*comm_abort)(Comm) = nullptr;
    Result (*comm_shrink)(Comm, int*, int, Comm*, Config*, int) = nullptr;  // 2.27
    Result (*comm_revoke)(Comm, int) = nullptr;                             // 2.28.7
    Result (*comm_get_async_error)(Comm, Result*) = nullptr;
    const char* (*get_error_string)(Result) = nullptr;
    const char* (*get_last_error)(Comm) = nullptr;
    Result (*all_reduce)(const void*, void*, std::size_t, Type, Op, Comm, void*) = nullptr;
    Result (*reduce)(const void*, void*, std::size_t, Type, Op, int, Comm, void*) = nullptr;
    Result (*broadcast)(const void*, void*, std::size_t, Type, int, Comm, void*) = nullptr;
    Result (*all_gather)(const void*, void*, std::size_t, Type, Comm, void*) = nullptr;
    Result (*reduce_scatter)(const void*, void*, std::size_t, Type, Op, Comm, void*) = nullptr;
    Result (*send)(const void*, std::size_t, Type, int, Comm, void*) = nullptr;
    Result (*recv)(void*, std::size_t, Type, int, Comm, void*) = nullptr;
};

}  // namespace lockstep::nccl

namespace lockstep::cuda {

using Device = int;
using Context = struct OpaqueContext*;
using Event = struct OpaqueEvent*;
using Pointer = unsigned long long;
enum Result : int { kSuccess = 0, kOutOfMemory = 2, kNoDevice = 100, kNotReady = 600 };
inline constexpr unsigned kDisableTiming = 2;  // CU_EVENT_DISABLE_TIMING

struct Api {
    Result (*init)(unsigned) = nullptr;
    Result (*driver_get_version)(int*) = nullptr;
    Result (*get_error_string)(Result, const char**) = nullptr;
    Result (*device_get_count)(int*) = nullptr;
    Result (*device_get)(Device*, int) = nullptr;
    Result (*primary_ctx_retain)(Context*, Device) = nullptr;
    Result (*primary_ctx_release)(Device) = nullptr;
    Result (*ctx_get_current)(Context*) = nullptr;
    Result (*ctx_set_current)(Context) = nullptr;
    Result (*mem_alloc)(Pointer*, std::size_t) = nullptr;
    Result (*mem_free)(Pointer) = nullptr;
    Result (*memcpy_to_gpu)(Pointer, const void*, std::size_t) = nullptr;
    Result (*memcpy_from_gpu)(void*, Pointer, std::size_t) = nullptr;
    Result (*event_create)(Event*, unsigned) = nullptr;
    Result (*event_destroy)(Event) = nullptr;
    Result (*event_record)(Event, void*) = nullptr;
    Result (*event_query)(Event) = nullptr;
    Result (*stream_is_capturing)(void*, int*) = nullptr;
};

}  // namespace lockstep::cuda
