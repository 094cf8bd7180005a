// nccl_abi.hpp against NVIDIA's own nccl.h, where there is one, and the real library beside it:
// loading and an id need no GPU.
#include "job/collective/nccl_library.hpp"

#include <gtest/gtest.h>
#include <nccl.h>

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <type_traits>

namespace lockstep {
namespace {

static_assert(sizeof(nccl::UniqueId) == sizeof(ncclUniqueId));
static_assert(nccl::kSuccess == int{ncclSuccess} &&
              nccl::kUnhandledCudaError == int{ncclUnhandledCudaError});
static_assert(nccl::kSystemError == int{ncclSystemError} &&
              nccl::kInternalError == int{ncclInternalError});
static_assert(nccl::kInvalidArgument == int{ncclInvalidArgument} &&
              nccl::kInvalidUsage == int{ncclInvalidUsage});
static_assert(nccl::kRemoteError == int{ncclRemoteError} &&
              nccl::kInProgress == int{ncclInProgress});
static_assert(nccl::kU8 == int{ncclUint8} && nccl::kI32 == int{ncclInt32} &&
              nccl::kI64 == int{ncclInt64});
static_assert(nccl::kF16 == int{ncclFloat16} && nccl::kF32 == int{ncclFloat32} &&
              nccl::kF64 == int{ncclFloat64} && nccl::kBf16 == int{ncclBfloat16});
static_assert(nccl::kSum == int{ncclSum} && nccl::kProd == int{ncclProd} &&
              nccl::kMax == int{ncclMax} && nccl::kMin == int{ncclMin} &&
              nccl::kAvg == int{ncclAvg});
static_assert(offsetof(nccl::Config, size) == offsetof(ncclConfig_t, size));
static_assert(offsetof(nccl::Config, magic) == offsetof(ncclConfig_t, magic));
static_assert(offsetof(nccl::Config, version) == offsetof(ncclConfig_t, version));
static_assert(offsetof(nccl::Config, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(nccl::Config{}.magic == NCCL_API_MAGIC);
#ifdef NCCL_SHRINK_ABORT
static_assert(nccl::kShrinkAbort == NCCL_SHRINK_ABORT);
#endif

// Two functions are called alike if their results and parameters are of the same kind and size.
template <class A, class B>
constexpr bool kAlike =
    sizeof(A) == sizeof(B) && alignof(A) == alignof(B) &&
    std::is_pointer_v<A> == std::is_pointer_v<B> && std::is_class_v<A> == std::is_class_v<B>;
template <class A, class B>
struct Calls;
template <class A, class... As, class B, class... Bs>
struct Calls<A (*)(As...), B (*)(Bs...)> {
    static constexpr bool alike() {
        if constexpr (sizeof...(As) == sizeof...(Bs)) {
            return kAlike<A, B> && (kAlike<As, Bs> && ...);
        }
        return false;
    }
};
#define ALIKE(field, function) \
    static_assert(Calls<decltype(nccl::Api::field), decltype(&(function))>::alike())
ALIKE(get_version, ncclGetVersion);
ALIKE(get_unique_id, ncclGetUniqueId);
ALIKE(comm_init_rank_config, ncclCommInitRankConfig);
ALIKE(comm_finalize, ncclCommFinalize);
ALIKE(comm_destroy, ncclCommDestroy);
ALIKE(comm_abort, ncclCommAbort);
ALIKE(comm_get_async_error, ncclCommGetAsyncError);
ALIKE(get_error_string, ncclGetErrorString);
ALIKE(get_last_error, ncclGetLastError);
ALIKE(all_reduce, ncclAllReduce);
ALIKE(reduce, ncclReduce);
ALIKE(broadcast, ncclBroadcast);
ALIKE(all_gather, ncclAllGather);
ALIKE(reduce_scatter, ncclReduceScatter);
ALIKE(send, ncclSend);
ALIKE(recv, ncclRecv);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 23, 0)
ALIKE(comm_init_rank_scalable, ncclCommInitRankScalable);
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
ALIKE(comm_shrink, ncclCommShrink);
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 29, 0)
ALIKE(comm_revoke, ncclCommRevoke);
#endif

TEST(NcclItself, LoadsAndMakesAnIdWithoutAGpu) {
    const std::filesystem::path library =
        std::filesystem::path{NCCL_INCLUDE} / "../lib" / kNcclLibrary;
    if (!std::filesystem::exists(library)) {
        GTEST_SKIP() << "there is nccl.h but no " << library;
    }
    const auto loaded = load_nccl(library.string());
    ASSERT_TRUE(loaded.has_value()) << loaded.error().text();
    EXPECT_EQ(loaded->version, NCCL_VERSION_CODE);
    nccl::UniqueId one{};
    nccl::UniqueId other{};
    ASSERT_EQ(loaded->api.get_unique_id(&one), nccl::kSuccess);
    ASSERT_EQ(loaded->api.get_unique_id(&other), nccl::kSuccess);
    EXPECT_NE(std::string(one.internal, sizeof one.internal),
              std::string(other.internal, sizeof other.internal));
    EXPECT_TRUE(
        std::string_view{loaded->api.get_error_string(nccl::kUnhandledCudaError)}.starts_with(
            "unhandled cuda error"));
}

}  // namespace
}  // namespace lockstep
