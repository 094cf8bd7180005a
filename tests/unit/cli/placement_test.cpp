#include "job/cli/placement.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::cli {
namespace {

using ::testing::HasSubstr;

std::string directives_error(const std::vector<std::string>& options) {
    Json slurm;
    const auto done = add_directives(slurm, options);
    return done ? "" : done.error().message;
}

TEST(CliPlacement, MemoryIsReadAsSbatchReadsIt) {
    for (const auto& [text, mb] : {std::pair{"1500", 1500},
                                   {"1M", 1},
                                   {"1025K", 2},
                                   {"1k", 1},
                                   {"64G", 65'536},
                                   {"2t", 2'097'152}}) {
        EXPECT_EQ(memory_mb(text).value_or(-1), mb) << text;
    }
    for (const char* text : {"", "0", "-1", "G", "64GB", "1.5G", "64 G", "1P", " 1", "+1",
                             "9999999999999999999G", "2000000000000T", "62T"}) {
        EXPECT_FALSE(memory_mb(text)) << text;
    }
    EXPECT_EQ(memory_mb("64GB").error().message,
              "64GB: must be memory as in 64G or 1500M, from 1M to 61T");
}

TEST(CliPlacement, OnlyWhatIsAskedForIsInTheSpecification) {
    EXPECT_TRUE(slurm_of("", {}).is_null());
    Placement all;
    all.account = "vision";
    all.qos = "high";
    all.constraint = "a100&nvlink";
    all.reservation = "course";
    all.nodelist = "n[1-2]";
    all.exclude = "n3";
    EXPECT_EQ(dump_json(slurm_of("gpu", all)),
              R"({"partition":"gpu","account":"vision","qos":"high","constraint":"a100&nvlink",)"
              R"("reservation":"course","nodelist":"n[1-2]","exclude":"n3"})");
}

TEST(CliPlacement, OtherOptionsOfSbatchAreDirectives) {
    Json slurm;
    ASSERT_TRUE(
        add_directives(slurm, {"licenses=matlab:2", "--contiguous", "comment=a=b", "extra="}));
    EXPECT_EQ(dump_json(slurm["directives"]),
              R"({"licenses":"matlab:2","contiguous":"","comment":"a=b","extra":""})");
    EXPECT_THAT(directives_error({"=x"}), HasSubstr("--sbatch =x: must be OPTION=VALUE"));
    EXPECT_THAT(directives_error({"--"}), HasSubstr("must be OPTION=VALUE"));
    EXPECT_EQ(directives_error({"nice=1", "--nice=2"}), "--sbatch nice: is given twice");
}

}  // namespace
}  // namespace lockstep::cli
