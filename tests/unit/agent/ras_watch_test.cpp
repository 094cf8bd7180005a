// A real agent and what listens where NCCL's RAS should: DOUBLES of it, good ones and bad ones.
// The ranks are shells that only look as if they had NCCL loaded.
#include "job/base/limits.hpp"
#include "job/model/evidence.hpp"
#include "tests/support/ras_words.hpp"
#include "tests/unit/agent/agent_fixture.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <thread>

namespace lockstep::test {
namespace {

using testing::HasSubstr;

// Answers one client after the other, line by line, as NCCL's does.
class RasDouble {
  public:
    using Answer = std::function<std::string(const std::string& line)>;
    // An answer that is empty closes the connection; STATUS's is followed by that.
    explicit RasDouble(Answer answer) : answer_(std::move(answer)), acceptor_(io_, {tcp::v4(), 0}) {
        thread_ = std::thread{[this] { serve(); }};
    }
    ~RasDouble() {
        over_ = true;
        ::shutdown(acceptor_.native_handle(), SHUT_RDWR);
        thread_.join();
    }
    std::string address() const {
        return "127.0.0.1:" + std::to_string(acceptor_.local_endpoint().port());
    }
    std::atomic<int> asked{0};  // for a status

  private:
    void serve() {
        while (!over_) {
            tcp::socket socket{io_};
            ErrorCode ec;
            acceptor_.accept(socket, ec);
            std::string line;
            char letter = 0;
            while (!ec && !over_ && socket.read_some(net::buffer(&letter, 1), ec) == 1) {
                if (letter != '\n') {
                    line += letter;
                    continue;
                }
                asked += line == "STATUS" ? 1 : 0;
                const std::string said = answer_(line);
                for (std::size_t sent = 0; sent < said.size() && !ec;) {
                    sent +=
                        socket.write_some(net::buffer(said.data() + sent, said.size() - sent), ec);
                }
                if (said.empty() || line == "STATUS") {
                    break;
                }
                line.clear();
            }
        }
    }
    Answer answer_;
    net::io_context io_;
    tcp::acceptor acceptor_;
    std::atomic<bool> over_{false};
    std::thread thread_;
};

// STATUS is answered with this.
RasDouble::Answer saying(std::function<std::string()> status) {
    return [status = std::move(status)](const std::string& line) -> std::string {
        if (line.starts_with("CLIENT PROTOCOL ")) {
            return "SERVER PROTOCOL 2\n";
        }
        return line == "STATUS" ? status() : "OK\n";
    };
}

class RasWatchTest : public AgentTest {
  protected:
    // Ranks that map a file by the name of NCCL's library, and say who they are.
    JobSpec job(const RasDouble& ras) {
        const std::string library = (folder.path() / "libnccl.so.2").string();
        JobSpec spec = shell("cp /usr/bin/sleep " + library + "-$RANK; echo $$ > pid-$RANK; exec " +
                                 library + "-$RANK 600",
                             2);
        spec.working_directory = folder.path().string();
        spec.environment["NCCL_RAS_ADDR"] = ras.address();
        return spec;
    }
    int pid(int rank) const {
        return std::atoi(text_of(folder.path() / ("pid-" + std::to_string(rank))).c_str());
    }
    std::string status(std::uint64_t first, std::uint64_t second) const {
        RasGroup group;
        for (int rank = 0; rank < 2; ++rank) {
            RasMember one;
            one.rank = rank;
            one.host = "127.0.0.1";
            one.pid = pid(rank);
            one.launched[4] = rank == 0 ? first : second;
            group.members.push_back(one);
        }
        return ras_words({group});
    }
    // The job's user is told this, once, and all goes on.
    void check_warning(RasDouble& ras, const std::string& text) {
        FakeDaemon daemon{job(ras), ranks(2)};
        const auto told = [&] {
            const auto all = daemon.all<wire::Warned>();
            return std::count_if(all.begin(), all.end(), [&](const wire::Warned& one) {
                return one.message.find(text) != std::string::npos;
            });
        };
        const auto agent = start_until(daemon, [&] { return told() > 0; });
        const auto beats = daemon.count<wire::Beat>();
        EXPECT_TRUE(daemon.run_until([&] { return daemon.count<wire::Beat>() > beats + 3; }));
        EXPECT_EQ(told(), 1);
        EXPECT_FALSE(agent->ended());
        daemon.send(0, wire::Stop{"over", 0});
        EXPECT_EQ(code_of(daemon, *agent), 0);
    }
};

TEST_F(RasWatchTest, WhoIsWaitedForIsSaidAfterEachLookAndItsCountsAreRows) {
    RasDouble ras{saying([this] { return status(10, 9); })};
    FakeDaemon daemon{job(ras), ranks(2)};
    const auto waited_for = [&] {
        const auto all = daemon.all<wire::Desync>();
        return !all.empty() && all.back().rank == 1;
    };
    const auto agent = start_until(daemon, waited_for);
    const auto last = daemon.all<wire::Desync>().back();
    EXPECT_EQ(last.generation, 1);
    EXPECT_GE(last.waited_ms, 4000);
    EXPECT_LT(last.waited_ms, 10'000);
    EXPECT_THAT(last.message, HasSubstr("rank 1 has not launched AllReduce 10"));
    EXPECT_EQ(daemon.all<wire::Desync>().front().rank, -1);
    double lag = 0;
    double launched = 0;
    for (const Batch& batch : daemon.batches) {
        for (std::size_t row = 0; row < batch.rows(); ++row) {
            EXPECT_EQ(batch.steps[row], -1);
            if (batch.ranks[row] == 1) {
                lag = batch.find("nccl_lag")->values[row];
                launched += batch.find("nccl_collectives")->values[row];
            }
        }
    }
    EXPECT_EQ(lag, 1.0);
    EXPECT_EQ(launched, 9.0);
    daemon.send(0, wire::Examine{1, "a test", {}, true});
    ASSERT_TRUE(daemon.run_until([&] { return daemon.count<wire::EvidenceSaved>() > 0; }));
    for (const int rank : {0, 1}) {
        std::filesystem::path file = folder.path();
        for (const std::string& name : evidence_folders(1, rank)) {
            file /= name;
        }
        EXPECT_THAT(text_of(file / kNcclText),
                    HasSubstr("the most is 10; behind: rank 1 by 1 (9)"));
    }
    daemon.send(0, wire::Stop{"over", 0});
    EXPECT_EQ(code_of(daemon, *agent), 0);
}

TEST_F(RasWatchTest, AnNcclWithoutJsonIsSaidToBeSo) {
    RasDouble ras{[](const std::string& line) -> std::string {
        return line.starts_with("CLIENT")    ? "SERVER PROTOCOL 2\n"
               : line.starts_with("TIMEOUT") ? "OK\n"
                                             : "ERROR: Unknown command " + line + "\n";
    }};
    check_warning(ras, "from 2.28.7 on it does");
    EXPECT_EQ(ras.asked, 0);
}

TEST_F(RasWatchTest, AStrangerIsSaidToBeOne) {
    RasDouble ras{[](const std::string&) { return std::string{"HTTP/1.1 400 Bad Request\r\n"}; }};
    check_warning(ras, "is not NCCL's RAS");
}

TEST_F(RasWatchTest, WordsThatAreTooDeepAreNotUnderstood) {
    RasDouble deep{saying([] { return std::string(3'000'000, '['); })};
    check_warning(deep, "is not understood");
}

TEST_F(RasWatchTest, WordsOfAnotherFormAreNotUnderstood) {
    RasDouble other{saying([] { return std::string{R"({"nccl_version":3})"}; })};
    check_warning(other, "is not understood");
}

TEST_F(RasWatchTest, WhatNeverEndsIsNotReadForEver) {
    RasDouble ras{saying([] { return std::string(limits::kRasAnswerBytes + 100'000, ' '); })};
    check_warning(ras, "says more than 4 MiB");
    EXPECT_EQ(ras.asked, 1);
}

}  // namespace
}  // namespace lockstep::test
