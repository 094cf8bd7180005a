#include "job/cli/export.hpp"

#include "tests/unit/cli/event_reader.hpp"
#include "tests/unit/cli/fake_daemon.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string content(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    std::ostringstream out;
    out << in.rdbuf();
    return out.str();
}

// Every file below a folder, as paths relative to it.
std::vector<std::string> files_in(const fs::path& folder) {
    std::vector<std::string> out;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
        if (!entry.is_directory()) {
            out.push_back(fs::relative(entry.path(), folder));
        }
    }
    std::sort(out.begin(), out.end());
    return out;
}

std::string query_value(const std::string& target, const std::string& name) {
    const auto at = target.find("&" + name + "=");
    if (at == std::string::npos) {
        return "";
    }
    const auto begin = at + name.size() + 2;
    return target.substr(begin, target.find('&', begin) - begin);
}

// Two ranks and two metrics; the loss comes in two pages, step 2 twice.
class CliExport : public testing::Test {
  protected:
    void SetUp() override {
        folder_ = fs::path(testing::TempDir()) /
                  (std::string("cli_export_") +
                   testing::UnitTest::GetInstance()->current_test_info()->name());
        fs::remove_all(folder_);
        fs::create_directories(folder_);
        daemon_.on(std::string("GET /v1/jobs/") + kId + "/metrics", 200,
                   R"({"ranks":2,"items":["grad_norm","loss"]})");
        daemon_.on(std::string("GET /v1/jobs/") + kId + "/samples?",
                   [this](const ClientRequest& request) { return samples(request); });
        run_.options.id = kId;
    }
    void TearDown() override { fs::remove_all(folder_); }

    virtual Result<ClientResponse> samples(const ClientRequest& request) {
        const std::string& target = request.target;
        if (fail_after_ > 0 && --fail_after_ == 0) {
            return fail(Errc::unavailable, "gone");
        }
        std::string body;
        if (!query_value(target, "from").empty()) {
            body = part(query_value(target, "generation"));
        } else if (target.find("metric=grad_norm") != std::string::npos) {
            body = R"({"runs":[{"rank":1,"attempt":1,"generation":1,"steps":[1,null],)"
                   R"("times":[1700000001.5,1700000002],"values":["inf",0.1]}]})";
        } else if (query_value(target, "cursor").empty()) {
            body = R"({"next_cursor":"a+b=","runs":[{"rank":0,"attempt":1,"generation":1,)"
                   R"("steps":[1,2],"times":[1700000001.25,1700000002.25],"values":[0.1,1e-07]},)"
                   R"({"rank":1,"attempt":1,"generation":1,"steps":[1,2],)"
                   R"("times":[1700000001.5,1700000002.5],"values":[3,"nan"]}]})";
        } else {
            body = R"({"runs":[{"rank":0,"attempt":1,"generation":2,"steps":[2],)"
                   R"("times":[1700000009],"values":["-inf"]}]})";
        }
        return ClientResponse{200, body, {}};
    }
    static std::string part(const std::string& generation) {
        if (generation == "2") {
            return R"({"runs":[{"rank":0,"attempt":1,"generation":2,"steps":[2],)"
                   R"("times":[1700000009],"values":[8]}]})";
        }
        return R"({"runs":[{"rank":0,"attempt":1,"generation":1,"steps":[1,2],)"
               R"("times":[1700000001.25,1700000002.25],"values":[1,4]},)"
               R"({"rank":1,"attempt":1,"generation":1,"steps":[1],)"
               R"("times":[1700000001.5],"values":[2]}]})";
    }
    Exit run() { return run_.verb("export"); }

    fs::path folder_;
    FakeDaemon daemon_;
    Cli run_{daemon_};
    int fail_after_ = 0;
};

constexpr const char* kCsv =
    "rank,attempt,generation,step,time,metric,value\r\n"
    "1,1,1,1,1700000001.5,grad_norm,Infinity\r\n"
    "1,1,1,,1700000002,grad_norm,0.1\r\n"
    "0,1,1,1,1700000001.25,loss,0.1\r\n"
    "0,1,1,2,1700000002.25,loss,1e-07\r\n"
    "1,1,1,1,1700000001.5,loss,3\r\n"
    "1,1,1,2,1700000002.5,loss,NaN\r\n"
    "0,1,2,2,1700000009,loss,-Infinity\r\n";

TEST(CliExportOptions, AFileIsNotTheFlagOfTheOtherVerbs) {
    Options options;
    CLI::App app;
    declare(app, options);
    app.parse("export ls-01JCXW --json - --metric loss,m1 --metric m2 --rank 0-3,7 --overwrite");
    EXPECT_EQ(options.json_lines, "-");
    EXPECT_FALSE(options.json);
    EXPECT_THAT(options.metrics, ElementsAre("loss", "m1", "m2"));
    EXPECT_EQ(options.ranks, "0-3,7");
    EXPECT_TRUE(options.overwrite);
    for (const char* line : {"export", "export a --json", "export a --csv x --json y",
                             "export a --tensorboard x --csv y", "export a --csv x --metric"}) {
        Options none;
        CLI::App other;
        declare(other, none);
        EXPECT_THROW(other.parse(line), CLI::ParseError) << line;
    }
}

TEST_F(CliExport, CsvToStandardOutput) {
    run_.options.csv = "-";
    EXPECT_EQ(run(), Exit::ok);
    EXPECT_EQ(run_.out.str(), kCsv);
    EXPECT_EQ(run_.err.str(), "");
    EXPECT_THAT(daemon_.asked.at(3).target, HasSubstr("&cursor=a%2Bb%3D"));
    EXPECT_THAT(daemon_.asked.at(1).target, HasSubstr("?metric=grad_norm&ranks=0-1&limit=65536"));
}

TEST_F(CliExport, CsvToAFileThatIsReplacedOnlyWhenAsked) {
    const fs::path file = folder_ / "out.csv";
    run_.options.csv = file;
    EXPECT_EQ(run(), Exit::ok);
    EXPECT_EQ(content(file), kCsv);
    EXPECT_EQ(run_.out.str(), "7 samples of 2 ranks in " + file.string() + "\n");
    std::ofstream(file) << "mine";
    EXPECT_EQ(run(), Exit::conflict);
    EXPECT_THAT(run_.err.str(), HasSubstr(file.string()));
    EXPECT_EQ(content(file), "mine");
    run_.options.overwrite = true;
    EXPECT_EQ(run(), Exit::ok);
    EXPECT_EQ(content(file), kCsv);
    EXPECT_THAT(files_in(folder_), ElementsAre("out.csv"));
}

TEST_F(CliExport, AnExistingLinkStaysOne) {
    std::ofstream(folder_ / "real.csv") << "mine";
    fs::create_symlink("real.csv", folder_ / "link.csv");
    run_.options.csv = folder_ / "link.csv";
    run_.options.overwrite = true;
    EXPECT_EQ(run(), Exit::ok);
    EXPECT_TRUE(fs::is_symlink(folder_ / "link.csv"));
    EXPECT_EQ(content(folder_ / "real.csv"), kCsv);
}

TEST_F(CliExport, JsonIsOneObjectALine) {
    run_.options.json_lines = "-";
    run_.options.metrics = {"loss"};
    EXPECT_EQ(run(), Exit::ok);
    std::istringstream lines(run_.out.str());
    std::vector<Json> rows;
    for (std::string line; std::getline(lines, line);) {
        rows.push_back(parse_json(line).value_or(Json()));
    }
    ASSERT_EQ(rows.size(), 5U);
    EXPECT_EQ(rows[0], Json::parse(R"({"rank":0,"attempt":1,"generation":1,"step":1,)"
                                   R"("time":1700000001.25,"metric":"loss","value":0.1})"));
    EXPECT_EQ(rows[3]["value"], "nan");
    EXPECT_EQ(rows[4]["value"], "-inf");
    EXPECT_EQ(json_line({0, 1, 1, -1, std::numeric_limits<double>::quiet_NaN(), 1}, "m"),
              "{\"rank\":0,\"attempt\":1,\"generation\":1,\"step\":null,\"time\":null,"
              "\"metric\":\"m\",\"value\":1}\n");
}

TEST_F(CliExport, TensorboardHasARunPerRankAndTheMean) {
    run_.options.tensorboard = folder_ / "runs" / "deep";
    EXPECT_EQ(run(), Exit::ok);
    const auto files = files_in(run_.options.tensorboard);
    ASSERT_EQ(files.size(), 3U);
    EXPECT_THAT(files[0], StartsWith("job/events.out.tfevents.1763687000."));
    EXPECT_THAT(files[1], StartsWith("rank-00000/events.out.tfevents.1763687000."));
    EXPECT_THAT(files[2], StartsWith("rank-00001/events.out.tfevents.1763687000."));
    const auto read = [&](std::size_t i) {
        std::vector<std::string> out;
        const auto events = EventReader::read(content(run_.options.tensorboard + "/" + files[i]));
        EXPECT_EQ(events.at(0).file_version, "brain.Event:2");
        for (std::size_t at = 1; at < events.size(); ++at) {
            std::ostringstream line;
            line << events[at].tag << " " << events[at].step << " "
                 << events[at].wall_time - 1'700'000'000 << " " << events[at].value.value_or(-99);
            out.push_back(line.str());
        }
        return out;
    };
    EXPECT_THAT(read(1), ElementsAre("loss 1 1.25 0.1", "loss 2 2.25 1e-07", "loss 2 9 -inf"));
    EXPECT_THAT(read(2), ElementsAre("grad_norm 1 1.5 inf", "loss 1 1.5 3", "loss 2 2.5 nan"));
    // grad_norm and loss are asked for again, by generation; the stand-in gives loss for both.
    EXPECT_THAT(read(0), ElementsAre("grad_norm 1 1.5 1.5", "grad_norm 2 2.25 4", "loss 1 1.5 1.5",
                                     "loss 2 2.25 4", "loss 2 9 8"));
    EXPECT_THAT(run_.err.str(), HasSubstr("1 samples have no step"));
    EXPECT_EQ(run_.out.str(), "6 samples of 2 ranks in " + run_.options.tensorboard + "\n");
}

TEST_F(CliExport, AnEarlierTensorboardExportIsReplacedOnlyWhenAsked) {
    run_.options.tensorboard = folder_;
    fs::create_directories(folder_ / "rank-00007");
    fs::create_directories(folder_ / "rank-00008");
    const fs::path old = folder_ / "rank-00007" / "events.out.tfevents.1.host.lockstep";
    const fs::path foreign = folder_ / "rank-00008" / "events.out.tfevents.1.host";
    std::ofstream(old) << "old";
    std::ofstream(foreign) << "foreign";
    const auto before = files_in(folder_);
    EXPECT_EQ(run(), Exit::conflict);
    EXPECT_THAT(run_.err.str(), HasSubstr(old.string()));
    EXPECT_EQ(files_in(folder_), before);
    run_.options.overwrite = true;
    EXPECT_EQ(run(), Exit::ok);
    EXPECT_FALSE(fs::exists(folder_ / "rank-00007"));
    EXPECT_EQ(content(foreign), "foreign");
    EXPECT_EQ(files_in(folder_).size(), 4U);
}

TEST_F(CliExport, OneRankHasNoMean) {
    run_.options.tensorboard = folder_;
    run_.options.metrics = {"grad_norm"};
    run_.options.ranks = "1";
    EXPECT_EQ(run(), Exit::ok);
    EXPECT_EQ(files_in(folder_).size(), 1U);
    EXPECT_THAT(daemon_.asked.at(1).target, HasSubstr("ranks=1&"));
}

TEST_F(CliExport, WhatMakesNoSenseIsSaidBeforeAnythingIsWritten) {
    const auto refused = [&](const std::string& metric, const std::string& ranks) {
        Cli run(daemon_);
        run.options.id = kId;
        run.options.csv = folder_ / "none.csv";
        run.options.ranks = ranks;
        if (!metric.empty()) {
            run.options.metrics = {metric};
        }
        const Exit end = run.verb("export");
        return std::pair{end, run.err.str()};
    };
    EXPECT_EQ(refused("acuracy", "").first, Exit::not_found);
    EXPECT_THAT(refused("acuracy", "").second, HasSubstr("acuracy; there is grad_norm, loss"));
    EXPECT_EQ(refused("", "2").first, Exit::not_found);
    EXPECT_THAT(refused("", "0,2").second, HasSubstr("no rank 2: the job has ranks 0-1"));
    EXPECT_EQ(refused("", "x").first, Exit::usage);
    EXPECT_EQ(run(), Exit::usage) << "no target";
    run_.options.csv = "-";
    run_.options.json = true;
    EXPECT_EQ(run(), Exit::usage) << "--json without a file";
    EXPECT_TRUE(files_in(folder_).empty());
}

TEST_F(CliExport, AJobWithoutSamplesAndOneThatIsNotThere) {
    FakeDaemon silent;
    silent.on("GET /v1/jobs/ls-01JCXW3V5N8Q2R7T9ZABCDEFGH/metrics", 200,
              R"({"ranks":2,"items":[]})");
    Cli run(silent);
    run.options.id = kId;
    run.options.tensorboard = folder_ / "new";
    EXPECT_EQ(run.verb("export"), Exit::not_found);
    EXPECT_THAT(run.err.str(), HasSubstr("no rank has reported anything"));
    EXPECT_FALSE(fs::exists(folder_ / "new"));
    FakeDaemon nobody;
    Cli other(nobody);
    other.options.id = kId;
    other.options.csv = "-";
    EXPECT_EQ(other.verb("export"), Exit::not_found);
    EXPECT_EQ(other.out.str(), "");
}

TEST_F(CliExport, WhereNothingCanBeWrittenItSaysSo) {
    std::ofstream(folder_ / "file") << "x";
    run_.options.tensorboard = folder_ / "file" / "below";
    EXPECT_EQ(run(), Exit::not_written);
    EXPECT_THAT(run_.err.str(), HasSubstr("file/below"));
    run_.options.tensorboard.clear();
    run_.options.csv = folder_ / "no" / "folder.csv";
    EXPECT_EQ(run(), Exit::not_written);
    run_.options.csv = folder_;
    EXPECT_EQ(run(), Exit::not_written);
    run_.options.csv = "/dev/full";
    EXPECT_EQ(run(), Exit::not_written);
    EXPECT_THAT(run_.err.str(), HasSubstr("No space left"));
    EXPECT_THAT(files_in(folder_), ElementsAre("file"));
}

TEST_F(CliExport, AFullDiskLeavesNothingBehind) {
    // As much as a file may be: none of it.
    struct rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
    const struct rlimit none{0, before.rlim_max};
    const auto handler = std::signal(SIGXFSZ, SIG_IGN);
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &none), 0);
    run_.options.tensorboard = folder_;
    const Exit tensorboard = run();
    run_.options.tensorboard.clear();
    run_.options.csv = folder_ / "out.csv";
    const Exit csv = run();
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
    std::signal(SIGXFSZ, handler);
    EXPECT_EQ(tensorboard, Exit::not_written);
    EXPECT_EQ(csv, Exit::not_written);
    EXPECT_TRUE(fs::is_empty(folder_)) << run_.err.str();
}

TEST_F(CliExport, ADaemonThatComesBackIsAskedAgain) {
    fail_after_ = 2;
    run_.options.csv = "-";
    EXPECT_EQ(run(), Exit::ok);
    EXPECT_EQ(run_.out.str(), kCsv);
}

TEST_F(CliExport, ADaemonThatIsGoneAtOnceIsNotWaitedFor) {
    fail_after_ = 1;
    run_.options.csv = folder_ / "out.csv";
    EXPECT_EQ(run(), Exit::unreachable);
    EXPECT_EQ(daemon_.asked.size(), 2U);
    EXPECT_TRUE(fs::is_empty(folder_));
}

class CliExportInterrupted : public CliExport {
  protected:
    Result<ClientResponse> samples(const ClientRequest& request) override {
        std::raise(SIGINT);
        return CliExport::samples(request);
    }
};

TEST_F(CliExportInterrupted, LeavesNothingBehindAndEndsAsInterrupted) {
    const auto handler = std::signal(SIGINT, SIG_IGN);
    run_.options.tensorboard = folder_;
    EXPECT_EQ(run(), Exit::interrupted);
    run_.options.tensorboard.clear();
    run_.options.csv = folder_ / "out.csv";
    EXPECT_EQ(run(), Exit::interrupted);
    EXPECT_TRUE(fs::is_empty(folder_));
    EXPECT_EQ(std::signal(SIGINT, handler), SIG_IGN) << "put back as it was";
}

// Ranks far apart with steps far apart: the questions for the mean stay few.
class CliExportSparse : public CliExport {
  protected:
    Result<ClientResponse> samples(const ClientRequest& request) override {
        const std::string rank = query_value(request.target, "ranks");
        return ClientResponse{200,
                              R"({"runs":[{"rank":)" + rank +
                                  R"(,"attempt":1,"generation":1,"steps":[0,9000000000000],)"
                                  R"("times":[1,2],"values":[1,)" +
                                  rank + "]}]}",
                              {}};
    }
};

TEST_F(CliExportSparse, AsksOncePerBlockForItsMeans) {
    FakeDaemon daemon;
    daemon.on(std::string("GET /v1/jobs/") + kId + "/metrics", 200,
              R"({"ranks":1000,"items":["loss"]})");
    daemon.on("GET ", [this](const ClientRequest& request) { return samples(request); });
    Cli run(daemon);
    run.options.id = kId;
    run.options.ranks = "3,900";
    run.options.tensorboard = folder_;
    EXPECT_EQ(run.verb("export"), Exit::ok);
    EXPECT_EQ(daemon.asked.size(), 5U);
    EXPECT_THAT(daemon.asked.back().target, HasSubstr("&from=0&to=9000000000000"));
    const auto events = EventReader::read(content(folder_ / files_in(folder_)[0]));
    ASSERT_EQ(events.size(), 3U);
    EXPECT_EQ(events[2].step, 9'000'000'000'000);
    EXPECT_EQ(events[2].value, 451.5F);
}

}  // namespace
}  // namespace lockstep::cli
