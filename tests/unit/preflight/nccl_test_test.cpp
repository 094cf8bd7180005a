// size: the judge of the test with NCCL, a case each
// preflight.nccl_test: what the program says, what comes of its end, and what is made of two
// rounds.
#include "daemon/control/machine/pair_state.hpp"
#include "job/agent/preflight/nccl_tester.hpp"
#include "job/base/limits.hpp"
#include "tests/unit/preflight/preflight_nodes.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <set>

namespace lockstep::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::UnorderedElementsAre;
using Names = std::map<std::int32_t, std::string>;

constexpr const char* kLoaded = R"({"gpus":8,"nccl":"2.32.3"})";
constexpr const char* kEnd =
    R"({"ranks":16,"nodes":2,"bytes":134217728,"bus_bytes_per_second":1.8e+11,)"
    R"("latency_seconds":3.1e-05,"wrong":0})";

std::string said(const std::vector<std::string>& lines) {
    std::string out;
    for (const std::string& line : lines) {
        out += line + "\n";
    }
    return out;
}

std::string end_with(const std::string& key, const Json& value) {
    Json out = *parse_json(kEnd);
    if (value.is_null()) {
        out.erase(key);
    } else {
        out[key] = value;
    }
    return dump_json(out);
}

ProcessResult over(std::string out, int status = 0) {
    ProcessResult result;
    result.out = std::move(out);
    result.exit_status = status;
    return result;
}

TEST(NcclTestAnswer, IsReadWithItsUnits) {
    const auto answer = parse_nccl_test_answer(said({kLoaded, R"({"stage":"x"})", kEnd}));
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_TRUE(answer->done);
    EXPECT_EQ(answer->stage, "x");
    EXPECT_EQ(answer->fact.version, "2.32.3");
    EXPECT_EQ(answer->fact.gpus, 8);
    EXPECT_EQ(answer->fact.ranks, 16);
    EXPECT_EQ(answer->fact.bus_mbs, 180'000);
    EXPECT_EQ(answer->fact.latency_ns, 31'000);
    const auto back = parse_nccl_test_fact(to_json(answer->fact));
    ASSERT_TRUE(back);
    EXPECT_EQ(*back, answer->fact);
}

TEST(NcclTestAnswer, OfAStrangerIsRefused) {
    const std::vector<std::string> bad{
        "hello",
        "[]",
        "{}",
        R"({"error":""})",
        R"({"error":7})",
        R"({"error":"x","blames":"them"})",
        R"({"gpus":65})",
        R"({"gpus":-1,"nccl":"2"})",
        R"({"gpus":1,"nccl":7})",
        R"({"stage":)" + std::string(300, '"') + "}",
        R"({"stage":")" + std::string(300, 'x') + R"("})",
        R"({"warning":[]})",
        end_with("ranks", 0),
        end_with("ranks", 129),
        end_with("ranks", 1e300),
        end_with("nodes", 3),
        end_with("nodes", nullptr),
        end_with("bytes", 0),
        end_with("wrong", -1),
        end_with("wrong", nullptr),
        end_with("bus_bytes_per_second", -1),
        end_with("bus_bytes_per_second", 1e30),
        end_with("bus_bytes_per_second", "fast"),
        end_with("bus_bytes_per_second", nullptr),
        end_with("latency_seconds", 1e9),
        end_with("latency_seconds", nullptr),
        std::string(kEnd) + "\n" + kEnd,
        std::string(kEnd) + "\n" + R"({"error":"after it"})",
    };
    for (const std::string& line : bad) {
        EXPECT_FALSE(parse_nccl_test_answer(said({kLoaded, line}))) << line.substr(0, 200);
    }
    EXPECT_FALSE(parse_nccl_test_answer(std::string(limits::kNcclTestBytes + 1, '\n')));
    for (const Json& fact : {Json::array(), Json{{"gpus", 1000}}, Json{{"bus_mbs", -2}},
                             Json{{"blames", "me"}}, Json{{"warnings", 1}}, Json{{"ranks", "2"}}}) {
        EXPECT_FALSE(parse_nccl_test_fact(fact)) << fact.dump();
    }
}

TEST(NcclTestAnswer, MayBeCutOffAnywhereAndIsMadePrintable) {
    const std::string whole = said({kLoaded, R"({"stage":"a\u001b[2Jb"})", kEnd});
    for (std::size_t size = 0; size <= whole.size(); ++size) {
        EXPECT_TRUE(parse_nccl_test_answer(whole.substr(0, size))) << size;
    }
    EXPECT_THAT(parse_nccl_test_answer(whole)->stage, Not(HasSubstr("\x1b")));
    const auto error = parse_nccl_test_answer(said({R"({"error":"a\u001b[2Jb\nc"})"}));
    ASSERT_TRUE(error);
    EXPECT_THAT(error->error, Not(HasSubstr("\x1b")));
}

TEST(NcclTestAnswer, KeepsFewWarnings) {
    const auto answer =
        parse_nccl_test_answer(said(std::vector<std::string>(100, R"({"warning":"w"})")));
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->fact.warnings.size(), limits::kNcclWarnings);
}

TEST(NcclTester, TakesAGoodEnd) {
    const PairOutcome out = nccl_test_outcome(over(said({kLoaded, kEnd})));
    EXPECT_EQ(out.problem, "");
    EXPECT_EQ(out.ms, 5'555) << "a terabyte at 180 GB/s";
    const PairOutcome alone =
        nccl_test_outcome(over(said({R"({"gpus":1,"nccl":"2.32.3"})",
                                     R"({"ranks":1,"nodes":1,"bytes":8,"bus_bytes_per_second":0,)"
                                     R"("latency_seconds":1e-6,"wrong":0})"})));
    EXPECT_EQ(alone.problem, "");
    EXPECT_EQ(alone.ms, 0);
}

TEST(NcclTester, SaysHowItFailed) {
    const PairOutcome wrong = nccl_test_outcome(over(said({kLoaded, end_with("wrong", 7)}), 1));
    EXPECT_EQ(wrong.problem, "7 wrong values in its sums");
    EXPECT_EQ(wrong.nccl.blames, NcclBlame::unknown) << "any of the GPUs may have done it";
    const PairOutcome error = nccl_test_outcome(
        over(said({kLoaded, R"({"error":"n1 has left","blames":"partner"})"}), 1));
    EXPECT_EQ(error.problem, "n1 has left");
    EXPECT_EQ(error.nccl.blames, NcclBlame::partner);
    ProcessResult hung = over(said({kLoaded, R"({"stage":"NCCL's all-reduce"})"}));
    hung.exit_status.reset();
    hung.signal = SIGKILL;
    EXPECT_EQ(nccl_test_outcome(hung).problem, "signal 9, in: NCCL's all-reduce");
    hung.timed_out = true;
    EXPECT_EQ(nccl_test_outcome(hung).problem, "not over within 30 s, in: NCCL's all-reduce");
    EXPECT_EQ(nccl_test_outcome(hung).nccl.blames, NcclBlame::unknown)
        << "it may have waited for the other one";
    hung.abandoned = true;
    EXPECT_THAT(nccl_test_outcome(hung).problem, HasSubstr("the driver hangs"));
    EXPECT_EQ(nccl_test_outcome(hung).nccl.blames, NcclBlame::self);
    ProcessResult broken = over("", 127);
    broken.err = "error while loading shared libraries\n";
    EXPECT_EQ(nccl_test_outcome(broken).problem,
              "exit code 127: error while loading shared libraries");
    EXPECT_THAT(nccl_test_outcome(over("hello\n")).problem,
                HasSubstr("its answer is not understood"));
    EXPECT_THAT(nccl_test_outcome(over("")).problem, HasSubstr("exit code 0")) << "no end";
    EXPECT_TRUE(nccl_test_outcome(fail(Errc::not_found, "start x")).absent);
    EXPECT_EQ(nccl_test_outcome(fail(Errc::denied, "start x: denied")).problem, "start x: denied");
}

TEST(NcclTester, TakesWhatNcclsDiagnosticsFoundWorthALook) {
    ProcessResult result = over(said({kLoaded, kEnd}));
    result.err =
        "h:7 NCCL DIAG [OK] ECC: no errors across 2 ranks in comm 0x1f\n"
        "h:7 NCCL DIAG [INFO] GPU inventory: model mismatch across 2 ranks in comm 0x1f, rank(s) 1 "
        "differ from rank 0 (H100)\nNCCL WARN other\n";
    EXPECT_THAT(nccl_test_outcome(result).nccl.warnings,
                ElementsAre("GPU inventory: model mismatch across 2 ranks, rank(s) 1 differ from "
                            "rank 0 (H100)"));
    result.err.clear();
    for (int i = 0; i < 100; ++i) {
        result.err += "h:7 NCCL DIAG [INFO] " + std::string(1'000, 'x') + "\n";
    }
    const auto warnings = nccl_test_outcome(result).nccl.warnings;
    EXPECT_EQ(warnings.size(), limits::kNcclWarnings);
    EXPECT_LT(warnings.at(0).size(), limits::kTextBytes);
}

TEST(NcclTester, GivesTheProgramWhatTheJobsRanksWouldHave) {
    const auto command = nccl_test_command("/p",
                                           {{"LD_LIBRARY_PATH", "/l"},
                                            {"NCCL_IB_HCA", "mlx5"},
                                            {"NCCL_DEBUG", "INFO"},
                                            {"NCCL_DEBUG_FILE", "/f"},
                                            {"LOCKSTEP_X", "1"},
                                            {"SLURM_X", "1"}},
                                           {{"token", "secret"}});
    EXPECT_THAT(command.argv, ElementsAre("/p"));
    EXPECT_THAT(command.environment,
                UnorderedElementsAre("LD_LIBRARY_PATH=/l", "NCCL_IB_HCA=mlx5", "NCCL_DEBUG=WARN",
                                     "NCCL_RUN_RAS_DIAGNOSTICS=1"));
    EXPECT_THAT(command.input, HasSubstr("secret"));
}

Names named(std::int32_t count) {
    Names out;
    for (std::int32_t slot = 0; slot < count; ++slot) {
        out[slot] = "n" + std::to_string(slot);
    }
    return out;
}

PairOutcome at(std::int64_t bus_mbs, std::int32_t nodes = 2, std::int64_t latency_ns = 30'000) {
    PairOutcome out;
    out.nccl.version = "2.32.3";
    out.nccl.gpus = 8;
    out.nccl.ranks = 8 * nodes;
    out.nccl.nodes = nodes;
    out.nccl.bus_mbs = bus_mbs;
    out.nccl.latency_ns = latency_ns;
    out.ms = 1'000'000'000 / bus_mbs;
    return out;
}

PairOutcome bad(const std::string& problem, NcclBlame blames = NcclBlame::unknown) {
    PairOutcome out{-1, problem, false};
    out.nccl.blames = blames;
    return out;
}

// What the nodes of a group would say, by which of them are slow or broken.
struct Fabric {
    std::set<std::int32_t> slow{};
    std::set<std::int32_t> broken{};
    std::int64_t slow_mbs = 20'000;
    bool said_itself = false;  // a broken one knows that it is

    PairRound play(std::vector<std::vector<std::int32_t>> groups) const {
        PairRound out{std::move(groups), {}};
        for (const auto& group : out.groups) {
            const auto any = [&](const std::set<std::int32_t>& of) {
                return std::any_of(group.begin(), group.end(),
                                   [&](std::int32_t slot) { return of.contains(slot); });
            };
            for (const std::int32_t slot : group) {
                const auto nodes = static_cast<std::int32_t>(group.size());
                // Within a node nothing of the network is seen.
                PairOutcome one =
                    nodes == 1 ? at(400'000, 1) : at(any(slow) ? slow_mbs : 180'000 + slot * 100);
                if (nodes == 2 && any(broken)) {
                    one = bad("NCCL: lost");
                    if (said_itself) {
                        one.nccl.blames =
                            broken.contains(slot) ? NcclBlame::self : NcclBlame::partner;
                    }
                }
                out.outcomes[slot] = one;
            }
        }
        return out;
    }
    std::vector<std::string> verdict(std::int32_t count) const {
        std::vector<std::int32_t> slots;
        for (std::int32_t slot = 0; slot < count; ++slot) {
            slots.push_back(slot);
        }
        const PairRound first = play(first_pairs(std::move(slots)));
        return lines(judge_nccl(named(count), first, play(second_pairs(first))));
    }
};

TEST(NcclJudge, NothingIsSaidOfGoodNodes) {
    for (std::int32_t count = 1; count <= 9; ++count) {
        EXPECT_THAT(Fabric{}.verdict(count), IsEmpty()) << count;
    }
}

TEST(NcclJudge, OneSlowOrBrokenNodeIsNamedAndItsPartnersAreNot) {
    for (std::int32_t count = 3; count <= 9; ++count) {
        for (std::int32_t one = 0; one < count; ++one) {
            SCOPED_TRACE(std::to_string(one) + " of " + std::to_string(count));
            const std::string fail = "n" + std::to_string(one) + " nccl_test fail: NCCL's";
            EXPECT_THAT((Fabric{{}, {one}}.verdict(count)), ElementsAre(HasSubstr(fail)));
            EXPECT_THAT((Fabric{{}, {one}, 0, true}.verdict(count)), ElementsAre(HasSubstr(fail)));
            if (count > 3) {
                EXPECT_THAT((Fabric{{one}, {}}.verdict(count)), ElementsAre(HasSubstr(fail)));
            }
        }
    }
}

TEST(NcclJudge, HalfTheMedianFailsAndThreeQuartersAreWarnedOf) {
    const auto found = [](std::int64_t mbs) { return Fabric{{2}, {}, mbs}.verdict(6); };
    EXPECT_THAT(found(80'000), ElementsAre(HasSubstr("n2 nccl_test fail")));
    EXPECT_THAT(found(100'000), ElementsAre(HasSubstr("n2 nccl_test warn")));
    EXPECT_THAT(found(140'000), IsEmpty());
    const Fabric slow{{2}, {}, 21'000};
    const PairRound first = slow.play({{0, 1}, {2, 3}});
    const auto all = judge_nccl(named(4), first, slow.play({{0, 2}, {1, 3}}));
    ASSERT_EQ(all.size(), 1U);
    EXPECT_EQ(
        words_of(all[0]),
        "n2: NCCL's all-reduce: with n3 21.0 GB/s and 30 µs on 16 GPUs, then with n0 21.0 GB/s "
        "and 30 µs on 16 GPUs; expected at least 50 % of the median of 4 groups of 16 GPUs "
        "here, 180 GB/s");
    EXPECT_EQ(preflight_cause(all[0], false), CauseClass::node_lost);
}

TEST(NcclJudge, OneSlowMeasurementBesideOneWithABrokenNodeIsOnlyWarnedOf) {
    const Fabric fabric{{}, {1}};
    PairRound first = fabric.play({{0, 1}, {2, 3}});
    PairRound second = fabric.play({{0, 2}, {1, 3}});
    second.outcomes[0].nccl.bus_mbs = second.outcomes[2].nccl.bus_mbs = 120'000;
    EXPECT_THAT(lines(judge_nccl(named(4), first, second)),
                ElementsAre(HasSubstr("n1 nccl_test fail")));
    second.outcomes[0].nccl.bus_mbs = second.outcomes[2].nccl.bus_mbs = 20'000;
    EXPECT_THAT(lines(judge_nccl(named(4), first, second)),
                ElementsAre(HasSubstr("n1 nccl_test fail"), HasSubstr("n0 nccl_test warn")));
}

TEST(NcclJudge, OfTwoNodesBothFailAndNeitherIsSlow) {
    EXPECT_THAT((Fabric{{}, {1}}.verdict(2)),
                ElementsAre(HasSubstr("n0 nccl_test fail"), HasSubstr("n1 nccl_test fail")));
    EXPECT_THAT((Fabric{{}, {1}, 0, true}.verdict(2)), ElementsAre(HasSubstr("n1 nccl_test fail")))
        << "it says so itself";
    EXPECT_THAT((Fabric{{0}, {}}.verdict(2)), IsEmpty()) << "nothing to be compared with";
}

TEST(NcclJudge, ANodeThatFailsByItselfIsNamed) {
    const Fabric fabric;
    PairRound first = fabric.play({{0, 1}, {2}});
    first.outcomes[2] = bad("3 wrong values in its sums");
    const PairRound second = fabric.play({{0, 2}, {1}});
    EXPECT_THAT(lines(judge_nccl(named(3), first, second)),
                ElementsAre(HasSubstr("n2 nccl_test fail: NCCL's all-reduce: alone it failed")));
}

TEST(NcclJudge, LibrariesThatDoNotLoadFailOnlyTheFew) {
    const auto verdict = [](const std::set<std::int32_t>& without) {
        Fabric fabric{{}, without, 0, true};
        PairRound first = fabric.play({{0, 1}, {2, 3}});
        PairRound second = fabric.play({{0, 2}, {1, 3}});
        for (const std::int32_t slot : without) {
            for (PairRound* round : {&first, &second}) {
                round->outcomes[slot] = bad("cannot load libnccl.so.2", NcclBlame::self);
                round->outcomes[slot].nccl.unloadable = true;
            }
        }
        return lines(judge_nccl(named(4), first, second));
    };
    EXPECT_THAT(verdict({1}),
                ElementsAre("n1 nccl_test fail: NCCL was not tested: cannot load libnccl.so.2"));
    EXPECT_THAT(verdict({0, 1, 2, 3}), testing::Each(HasSubstr(" warn: NCCL was not tested")));
    EXPECT_EQ(verdict({0, 1, 2, 3}).size(), 4U);
    EXPECT_EQ(verdict({0, 1, 2}).size(), 3U) << "and nothing of their partner";
    EXPECT_THAT(verdict({0, 1, 2}), testing::Each(HasSubstr(" warn: ")));
    EXPECT_THAT(verdict({0, 1}), testing::Each(HasSubstr(" fail: "))) << "half of them have it";
}

TEST(NcclJudge, SlowAnswersAndWarningsAreWarnedOf) {
    const Fabric fabric;
    PairRound first = fabric.play({{0, 1}, {2, 3}});
    PairRound second = fabric.play({{0, 2}, {1, 3}});
    for (const std::int32_t slot : {2, 3}) {
        first.outcomes[slot].nccl.latency_ns = 200'000;
    }
    for (const std::int32_t slot : {0, 2}) {
        second.outcomes[slot].nccl.latency_ns = 200'000;
    }
    first.outcomes[1].nccl.warnings = {"odd NIC"};
    second.outcomes[1].nccl.warnings = {"odd NIC", "old firmware"};
    EXPECT_THAT(
        lines(judge_nccl(named(4), first, second)),
        UnorderedElementsAre(
            HasSubstr("n2 nccl_test warn: NCCL's all-reduce: with n3 180 GB/s and 200 µs"),
            "n1 nccl_test warn: NCCL warns (ranks from 8 on are of n0): odd NIC; and (ranks "
            "from 8 on are of n3): old firmware"));
}

TEST(NcclPairState, ItsRoundsAreNotThoseOfTheOtherTest) {
    PairState state{PairState::Kind::nccl};
    const PairState::Time now{std::chrono::hours{1}};
    state.begin(named(2), now);
    EXPECT_EQ(state.round(), 3);
    state.tested(0, 1, at(100));  // the other test's
    state.tested(0, 3, at(100));
    state.tested(1, 3, at(100));
    ASSERT_NE(state.next(now), nullptr);
    EXPECT_EQ(state.round(), 4);
    EXPECT_FALSE(state.judge(now + limits::kPairPatience)) << "it may take longer";
    state.gone(0);
    state.gone(1);
    EXPECT_TRUE(state.judge(now));
}

TEST(NcclPairState, ThatHasNotBegunTakesNoAnswer) {
    PairState state{PairState::Kind::nccl};
    state.tested(0, 2, at(100));
    state.gone(0);
    EXPECT_FALSE(state.begun());
}

}  // namespace
}  // namespace lockstep::test
