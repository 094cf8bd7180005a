// What NCCL or the driver (their double: tests/support/nccl_double) cannot do from the beginning.
#include "job/collective/memory_key_store.hpp"
#include "job/collective/nccl.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

namespace lockstep {
namespace {

struct Wrong {
    const char* words;
    const char* nccl;
    const char* driver;
    std::int32_t gpu;
    Errc code;
    const char* said;
    friend void PrintTo(const Wrong& one, std::ostream* out) { *out << one.said; }
};
class NcclDoesNotLoad : public testing::TestWithParam<Wrong> {
  protected:
    void TearDown() override { ::unsetenv("LOCKSTEP_NCCL_DOUBLE"); }
};

TEST_P(NcclDoesNotLoad, WithANamedCause) {
    ::setenv("LOCKSTEP_NCCL_DOUBLE", GetParam().words, 1);
    NcclOptions options;
    options.nccl_library = GetParam().nccl;
    options.cuda_driver = GetParam().driver;
    options.gpu = GetParam().gpu;
    MemoryKeyStore keys;
    const auto made = make_nccl(options, keys, [](const auto& make) {
        return make().map([](const NcclUniqueId& id) { return std::vector{id}; });
    });
    ASSERT_FALSE(made.has_value());
    EXPECT_EQ(made.error().code, GetParam().code);
    EXPECT_THAT(made.error().message, testing::HasSubstr(GetParam().said));
}

INSTANTIATE_TEST_SUITE_P(
    Wrongs, NcclDoesNotLoad,
    testing::Values(
        Wrong{"", "/no/such/libnccl.so.2", NCCL_DOUBLE, 0, Errc::not_found,
              "NCCL: cannot load /no/such/libnccl.so.2"},
        Wrong{"", "libm.so.6", NCCL_DOUBLE, 0, Errc::invalid, "libm.so.6 has no ncclGetVersion"},
        Wrong{"version=21703", NCCL_DOUBLE, NCCL_DOUBLE, 0, Errc::invalid, "is version 21703"},
        Wrong{"", NCCL_DOUBLE, "/no/such/libcuda.so.1", 0, Errc::not_found,
              "no GPU can be used: cannot load /no/such/libcuda.so.1"},
        Wrong{"driver=100", NCCL_DOUBLE, NCCL_DOUBLE, 0, Errc::not_found, "no CUDA-capable device"},
        Wrong{"gpus=2", NCCL_DOUBLE, NCCL_DOUBLE, 2, Errc::not_found,
              "no GPU 2: this process sees 2"}));

}  // namespace
}  // namespace lockstep
