// preflight.gpu_test: what the program says, what comes of its end, and what is made of it.
#include "job/agent/preflight/gpu_tester.hpp"
#include "job/model/preflight/preflight_devices.hpp"
#include "tests/unit/preflight/preflight_nodes.hpp"

#include <gtest/gtest.h>

#include <csignal>

namespace lockstep::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

constexpr const char* kGood =
    R"({"gpu":0,"uuid":"GPU-00","name":"NVIDIA H100 80GB HBM3","driver":13000,"gemm_flops":3.1e+14,)"
    R"("gemm_wrong":0,"clock_hz":1.98e+09,"memory_bytes":76000000000,)"
    R"("memory_bytes_per_second":2.6e+12,"memory_wrong":0,"copy_bytes_per_second":5.5e+10,)"
    R"("seconds":1.02})";

std::string lines_of(const std::vector<std::string>& lines) {
    std::string out;
    for (const std::string& line : lines) {
        out += line + "\n";
    }
    return out;
}

// The good line of another GPU, with one member as `value`; null: without it.
std::string line_of(std::int32_t gpu, const std::string& key = "", const Json& value = nullptr) {
    Json out = *parse_json(kGood);
    out["gpu"] = gpu;
    if (!key.empty() && value.is_null()) {
        out.erase(key);
    } else if (!key.empty()) {
        out[key] = value;
    }
    return dump_json(out);
}

ProcessResult ended(std::string out, int status = 0) {
    ProcessResult result;
    result.out = std::move(out);
    result.exit_status = status;
    return result;
}

TEST(GpuTestAnswer, IsReadWithItsUnits) {
    const auto answer = parse_gpu_test_answer(lines_of({R"({"gpus":1})", kGood}));
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_EQ(answer->gpus, 1);
    ASSERT_THAT(answer->tested, SizeIs(1));
    const GpuTestFact& gpu = answer->tested[0];
    EXPECT_EQ(gpu.uuid, "GPU-00");
    EXPECT_EQ(gpu.model, "NVIDIA H100 80GB HBM3");
    EXPECT_EQ(gpu.gemm_gflops, 310'000);
    EXPECT_EQ(gpu.memory_mbs, 2'600'000);
    EXPECT_EQ(gpu.copy_mbs, 55'000);
    EXPECT_EQ(gpu.clock_mhz, 1980);
    const auto unmeasured =
        parse_gpu_test_answer(lines_of({R"({"gpus":1})", line_of(0, "clock_hz", 0)}));
    ASSERT_TRUE(unmeasured);
    EXPECT_EQ(unmeasured->tested[0].clock_mhz, -1);
}

TEST(GpuTestAnswer, OfAStrangerIsRefused) {
    const std::string first = R"({"gpus":2})";
    for (const std::string& bad : {std::string{"x"},
                                   std::string{"[]"},
                                   std::string{"{}"},
                                   std::string{"3"},
                                   std::string{R"({"gpus":0})"},
                                   std::string{R"({"gpus":65})"},
                                   std::string{R"({"gpus":"2"})"},
                                   std::string{R"({"error":7})"},
                                   std::string{R"({"gpu":-1,"error":"x"})"},
                                   line_of(0, "gpu", "0"),
                                   line_of(0, "gpu", 1e30),
                                   line_of(0, "gemm_wrong"),
                                   line_of(0, "memory_wrong"),
                                   line_of(0, "gemm_wrong", -1),
                                   line_of(0, "gemm_wrong", 0.5),
                                   line_of(0, "gemm_flops"),
                                   line_of(0, "gemm_flops", 0),
                                   line_of(0, "gemm_flops", -3e14),
                                   line_of(0, "gemm_flops", 1e30),
                                   line_of(0, "gemm_flops", "nan"),
                                   line_of(0, "memory_bytes_per_second"),
                                   line_of(0, "copy_bytes_per_second", Json::array()),
                                   line_of(0, "clock_hz", -1),
                                   line_of(0, "name", std::string(257, 'x')),
                                   line_of(0, "uuid", Json::object()),
                                   std::string(300, '['),
                                   std::string(300'000, ' ')}) {
        EXPECT_FALSE(parse_gpu_test_answer(lines_of({first, bad}))) << bad.substr(0, 300);
    }
    EXPECT_FALSE(parse_gpu_test_answer(lines_of({kGood}))) << "more than it began with";
    EXPECT_FALSE(parse_gpu_test_answer(lines_of({first, line_of(0), line_of(0)}))) << "twice";
    EXPECT_FALSE(parse_gpu_test_answer(lines_of({first, line_of(0), line_of(1), line_of(2)})));
}

TEST(GpuTestAnswer, MayBeCutOffAnywhere) {
    const std::string whole = lines_of({R"({"gpus":2})", line_of(0), line_of(1)});
    for (std::size_t size = 0; size < whole.size(); ++size) {
        EXPECT_TRUE(parse_gpu_test_answer(whole.substr(0, size))) << size;
    }
}

TEST(GpuTestAnswer, IsMadePrintable) {
    const auto answer =
        parse_gpu_test_answer(lines_of({R"({"gpus":1})", line_of(0, "name", "a\x1b[2J")}));
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->tested[0].model.find('\x1b'), std::string::npos);
}

TEST(GpuTester, TakesAGoodEnd) {
    const auto facts = gpu_test_facts(ended(lines_of({R"({"gpus":2})", line_of(1), line_of(0)})));
    EXPECT_TRUE(facts.ran);
    EXPECT_EQ(facts.problem, "");
    EXPECT_THAT(facts.gpus, SizeIs(2));
    const auto wrong =
        gpu_test_facts(ended(lines_of({R"({"gpus":1})", line_of(0, "gemm_wrong", 3)}), 1));
    EXPECT_EQ(wrong.problem, "") << "told of the GPU";
    EXPECT_EQ(wrong.gpus.at(0).gemm_wrong, 3);
}

TEST(GpuTester, NamesTheGpuThatHangs) {
    ProcessResult result = ended(lines_of({R"({"gpus":3})", line_of(0), line_of(2)}));
    result.exit_status.reset();
    result.signal = SIGKILL;
    result.timed_out = true;
    auto facts = gpu_test_facts(result);
    EXPECT_EQ(facts.problem, "not over within 20 s; without a result: GPU 1");
    EXPECT_THAT(facts.gpus, SizeIs(2)) << "what it said before counts";
    result.signal.reset();
    result.abandoned = true;
    EXPECT_EQ(gpu_test_facts(result).problem,
              "not over within 20 s, and its kill did not end it: the driver hangs; without a "
              "result: GPU 1");
}

TEST(GpuTester, SaysHowElseItEnded) {
    EXPECT_TRUE(gpu_test_facts(fail(Errc::not_found, "start x: No such file")).absent);
    EXPECT_EQ(gpu_test_facts(fail(Errc::denied, "start x: denied")).problem, "start x: denied");
    ProcessResult crashed = ended(lines_of({R"({"gpus":1})"}));
    crashed.exit_status.reset();
    crashed.signal = SIGSEGV;
    EXPECT_EQ(gpu_test_facts(crashed).problem, "signal 11; without a result: GPU 0");
    ProcessResult silent = ended("", 127);
    silent.err = "lib missing\x1b\n";
    EXPECT_EQ(gpu_test_facts(silent).problem, "exit code 127: lib missing");
    EXPECT_EQ(gpu_test_facts(ended("")).problem, "exit code 0") << "it said nothing";
    EXPECT_THAT(gpu_test_facts(ended("hello\n")).problem,
                HasSubstr("its answer is not understood"));
    ProcessResult flood = ended(lines_of({R"({"gpus":1})", kGood}));
    flood.overflowed = true;
    EXPECT_EQ(gpu_test_facts(flood).problem, "it says too much");
}

TEST(GpuTester, TellsADriverThatIsTooOldFromOneThatDoesNotWork) {
    const auto said = [](int code) {
        return ended(R"({"error":"no GPU can be used: x","code":)" + std::to_string(code) + "}\n",
                     77);
    };
    EXPECT_TRUE(gpu_test_facts(said(35)).skipped);
    EXPECT_FALSE(gpu_test_facts(said(802)).skipped);
    EXPECT_EQ(gpu_test_facts(said(802)).problem, "no GPU can be used: x");
}

// Longer facts would be refused, and with them all that the node says.
TEST(GpuTester, WhatItSaysFitsIntoTheFacts) {
    std::vector<std::string> lines{R"({"gpus":64})"};
    ProcessResult result = ended(lines_of(lines), 3);
    result.err = std::string(500, '\xff');
    NodeFacts facts = good_facts(0);
    facts.gpu_test = gpu_test_facts(result);
    EXPECT_THAT(facts.gpu_test.problem, HasSubstr("exit code 3"));
    const auto back = parse_node_facts(to_json(facts));
    EXPECT_TRUE(back) << back.error().message;
}

JobSpec tested_spec(std::int32_t nodes = 1, std::int32_t gpus = 2) {
    JobSpec out = spec_of(nodes);
    out.resources.gpus_per_node = gpus;
    out.preflight.gpu_test = true;
    return out;
}

GpuTestFact good_fact(std::int32_t gpu) {
    GpuTestFact out;
    out.gpu = gpu;
    out.uuid = "GPU-0" + std::to_string(gpu);
    out.model = "H100";
    out.gemm_gflops = 310'000;
    out.memory_mbs = 2'600'000;
    out.copy_mbs = 55'000;
    out.clock_mhz = 1980;
    return out;
}

std::vector<PreflightNode> tested_nodes(std::int32_t count, std::int32_t gpus = 2) {
    auto out = good_nodes(count);
    for (PreflightNode& node : out) {
        node.facts.gpu.driver = true;
        node.facts.gpu.count = gpus;
        node.facts.gpu_test.ran = true;
        for (std::int32_t gpu = 0; gpu < gpus; ++gpu) {
            node.facts.gpu_test.gpus.push_back(good_fact(gpu));
        }
    }
    return out;
}

TEST(GpuTestJudgement, FindsNothingAboutGoodGpus) {
    const auto nodes = tested_nodes(3);
    EXPECT_THAT(check_node(nodes[0], tested_spec(3)), IsEmpty());
    EXPECT_THAT(compare_nodes(nodes, tested_spec(3)), IsEmpty());
}

TEST(GpuTestJudgement, NamesTheGpuThatIsWrong) {
    auto node = tested_nodes(1)[0];
    node.facts.gpu_test.gpus[1].gemm_wrong = 3;
    node.facts.gpu_test.gpus[1].memory_wrong = 5;
    const auto found = check_node(node, tested_spec());
    EXPECT_THAT(lines(found),
                ElementsAre("n0 gpu_test fail: GPU 1 (GPU-01) has computed 3 wrong values of a "
                            "product of matrices",
                            "n0 gpu_test fail: GPU 1 (GPU-01) has read 5 wrong values from its "
                            "memory"));
    EXPECT_EQ(preflight_cause(found[0], true), CauseClass::gpu_fault);
    node = tested_nodes(1)[0];
    node.facts.gpu_test.gpus[0] = {0, "", "", "cudaMalloc: out of memory"};
    EXPECT_THAT(lines(check_node(node, tested_spec())),
                ElementsAre("n0 gpu_test fail: GPU 0 could not be tested: cudaMalloc: out of "
                            "memory"));
}

TEST(GpuTestJudgement, ComparesEachRateWithTheMedianOfItsModel) {
    struct RateRow {
        std::int64_t GpuTestFact::* rate;
        std::int64_t good;
        std::int64_t bad;
        const char* found;
        const char* expected;
    };
    for (const RateRow& row :
         std::vector<RateRow>{{&GpuTestFact::gemm_gflops, 155'000, 154'999,
                               "fail: GPU 1 (GPU-01) multiplies matrices at 155 TFLOP/s",
                               "at least 50 % of the median of 6 H100 here, 310 TFLOP/s"},
                              {&GpuTestFact::memory_mbs, 1'300'000, 1'200'000,
                               "fail: GPU 1 (GPU-01) writes and reads its memory at 1200 GB/s",
                               "at least 50 % of the median of 6 H100 here, 2600 GB/s"},
                              {&GpuTestFact::copy_mbs, 33'000, 27'500,
                               "fail: GPU 1 (GPU-01) is copied to from host memory at 27.5 GB/s",
                               "at least 60 % of the median of 6 H100 here, 55.0 GB/s"},
                              {&GpuTestFact::clock_mhz, 1485, 1200,
                               "warn: GPU 1 (GPU-01) has a clock under load of 1200 MHz",
                               "at least 75 % of the median of 6 H100 here, 1980 MHz"}}) {
        auto nodes = tested_nodes(3);
        GpuTestFact& gpu = nodes[2].facts.gpu_test.gpus[1];
        gpu.*row.rate = row.good;
        EXPECT_THAT(compare_nodes(nodes, tested_spec(3)), IsEmpty()) << row.found;
        gpu.*row.rate = row.bad;
        const auto found = compare_nodes(nodes, tested_spec(3));
        EXPECT_THAT(lines(found), ElementsAre(std::string{"n2 gpu_test "} + row.found));
        EXPECT_EQ(found.at(0).expected, row.expected);
        gpu.model = "A100";
        EXPECT_THAT(compare_nodes(nodes, tested_spec(3)), IsEmpty()) << "among its own kind alone";
    }
}

TEST(GpuTestJudgement, OfTwoGpusTheSlowerOneIsNamed) {
    auto nodes = tested_nodes(1);
    nodes[0].facts.gpu_test.gpus[0].gemm_gflops = 100'000;
    EXPECT_THAT(lines(compare_nodes(nodes, tested_spec())),
                ElementsAre(HasSubstr("GPU 0 (GPU-00) multiplies matrices at 100 TFLOP/s")));
    nodes[0].facts.gpu_test.gpus[0].error = "x";
    EXPECT_THAT(compare_nodes(nodes, tested_spec()), IsEmpty()) << "told already";
}

TEST(GpuTestJudgement, FewerGpusThanAskedForFailUnlessTheyAreDivided) {
    auto node = tested_nodes(1)[0];
    node.facts.gpu_test.gpus.pop_back();
    EXPECT_THAT(lines(check_node(node, tested_spec())),
                ElementsAre("n0 gpu_test fail: CUDA sees 1 GPU"));
    node.facts.gpu_test.gpus[0].model = "NVIDIA A100-SXM4-40GB MIG 1g.5gb";
    EXPECT_THAT(check_node(node, tested_spec()), IsEmpty());
}

TEST(GpuTestJudgement, WhatWasNotTestedIsSaid) {
    auto node = tested_nodes(1)[0];
    GpuTestFacts& test = node.facts.gpu_test;
    test = {true, false, false, "not over within 20 s; without a result: GPU 1", {good_fact(0)}};
    EXPECT_THAT(lines(check_node(node, tested_spec())),
                ElementsAre("n0 gpu_test fail: the test of its GPUs: not over within 20 s; without "
                            "a result: GPU 1"));
    test = {true, false, true, "the driver is old", {}};
    EXPECT_THAT(lines(check_node(node, tested_spec())),
                ElementsAre("n0 gpu_test warn: its GPUs were not tested: the driver is old"));
    test = {true, true, false, "", {}};
    EXPECT_THAT(lines(check_node(node, tested_spec())),
                ElementsAre("n0 gpu_test warn: lockstep-gpu-test is not installed: its GPUs were "
                            "not tested"));
    test = {};
    EXPECT_THAT(lines(check_node(node, tested_spec())),
                ElementsAre("n0 gpu_test warn: its agent does not know the test of GPUs"));
    auto spec = tested_spec();
    spec.preflight.gpu_test = false;
    EXPECT_THAT(check_node(node, spec), IsEmpty());
}

TEST(GpuTestFacts, TravelWholeAndBounded) {
    NodeFacts facts = tested_nodes(1)[0].facts;
    facts.gpu_test.problem = "p";
    facts.gpu_test.absent = facts.gpu_test.skipped = true;
    facts.gpu_test.gpus[1] = {1, "GPU-01", "H100", "e", 1, 2, 3, 4, 5, 6};
    const Json json = to_json(facts);
    const auto back = parse_node_facts(json);
    ASSERT_TRUE(back) << back.error().message;
    EXPECT_EQ(to_json(*back), json);
    for (const auto& [key, value] :
         std::vector<std::pair<std::string, Json>>{{"gpu", -1},
                                                   {"gpu", "0"},
                                                   {"gemm_wrong", -1},
                                                   {"gemm_gflops", INT64_MAX},
                                                   {"clock_mhz", 1.5},
                                                   {"model", 3},
                                                   {"error", std::string(257, 'x')}}) {
        Json bad = json;
        bad["gpu_test"]["gpus"][0][key] = value;
        EXPECT_FALSE(parse_node_facts(bad)) << key;
    }
    Json many = json;
    many["gpu_test"]["gpus"] = Json(std::vector<Json>(65, json["gpu_test"]["gpus"][0]));
    EXPECT_FALSE(parse_node_facts(many));
    for (const Json& bad : {Json(3), Json::array(), Json{{"gpus", 3}}, Json{{"ran", "yes"}}}) {
        Json other = json;
        other["gpu_test"] = bad;
        EXPECT_FALSE(parse_node_facts(other)) << bad;
    }
    Json old = json;
    old.erase("gpu_test");
    EXPECT_TRUE(parse_node_facts(old)) << "of an older agent";
}

}  // namespace
}  // namespace lockstep::test
