// Files of evidence on a file system that hangs, as the job does: the daemon goes on.
#include "daemon/http/auth/token_table.hpp"
#include "daemon/http/routes/routes.hpp"
#include "daemon/store/database.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/http/fake_control.hpp"
#include "tests/unit/http/server_fixture.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

using namespace std::chrono_literals;

class EvidenceRoutesTest : public testing::Test {
  protected:
    explicit EvidenceRoutesTest(std::chrono::milliseconds read_patience = 60s)
        : context_{io_, control_, metrics_, tokens_} {
        context_.read_patience = read_patience;
        add_routes(router_, context_);
        server_ = std::make_unique<TestServer>(router_, &control_.gate, HttpSettings{},
                                               Surface::all, &io_);
        control_.evidence_at = {folder_.path().string(), {"evidence"}};
        std::filesystem::create_directories(folder_ / "evidence");
        std::ofstream{folder_ / "evidence/state.txt"} << "asleep";
    }
    ~EvidenceRoutesTest() override {
        let_go();
        store_.stop();  // it keeps the server's thread at work
    }
    // So many reads more that do not come back.
    void hang(int reads) {
        const int wanted = *began_ + reads;
        for (int i = 0; i < reads; ++i) {
            net::post(io_, [this] { net::co_spawn(io_, stand_still(), net::detached); });
        }
        const auto deadline = std::chrono::steady_clock::now() + 60s;
        while (*began_ < wanted && std::chrono::steady_clock::now() < deadline) {
            std::this_thread::yield();
        }
        ASSERT_EQ(*began_, wanted);
    }
    void let_go() {
        if (!std::exchange(let_go_, true)) {
            hang_.set_value();
        }
    }
    Task<void> stand_still() {
        const std::function<bool()> work = [end = end_, began = began_] {
            ++*began;
            end.wait();
            return true;
        };
        const auto until = std::chrono::steady_clock::now() + 60s;
        co_await context_.readers->run<bool>(work, until);
    }
    ClientResponse get(const std::string& rest) {
        auto response = server_->call("GET", "/v1/jobs/" + std::string{kJob} + "/evidence" + rest,
                                      "user-token");
        EXPECT_TRUE(response) << rest;
        return response ? *response : ClientResponse{};
    }

    const test::TemporaryFolder folder_;
    bool let_go_ = false;
    std::promise<void> hang_;
    std::shared_future<void> end_{hang_.get_future()};
    std::shared_ptr<std::atomic<int>> began_ = std::make_shared<std::atomic<int>>(0);
    net::io_context io_{1};
    FakeControl control_;
    telemetry::DaemonMetrics metrics_;
    Store store_{io_, std::move(Database::open(folder_ / "db").value()), Store::Hooks{}};
    const SystemClock clock_;
    TaskGroup tasks_{io_};
    TokenTable tokens_{store_, clock_, tasks_, {}};
    RouteContext context_;
    Router router_;
    std::unique_ptr<TestServer> server_;
};

// Where reads are given up within the patience of the test's client.
class HangingFilesTest : public EvidenceRoutesTest {
  protected:
    HangingFilesTest() : EvidenceRoutesTest{2s} {}
    // An answer, asked for anew if the machine stood still for all the time that a read has.
    template <class Ask>
    static std::string good(const Ask& ask) {
        auto answer = ask();
        for (int again = 0; again < 5 && answer.status == 503; ++again) {
            answer = ask();
        }
        return answer.body;
    }
};

TEST_F(HangingFilesTest, AFileSystemThatHangsStopsNeitherTheDaemonNorOtherReads) {
    hang(7);
    EXPECT_EQ(good([this] { return get("/state.txt"); }), "asleep");
    hang(1);
    const auto none = get("/state.txt");
    EXPECT_EQ(none.status, 503) << none.body;
    EXPECT_NE(none.body.find("file system"), std::string::npos) << none.body;
    EXPECT_EQ(get("").status, 200) << "the control thread is free";
}

// The log of a job on a dead file server was read on the control thread: everybody waited.
TEST_F(HangingFilesTest, ALogOnAFileSystemThatHangsStopsNobody) {
    const auto log = [this] {
        const auto response =
            server_->call("GET", "/v1/jobs/" + std::string{kJob} + "/logs?rank=0", "user-token");
        EXPECT_TRUE(response);
        return response ? *response : ClientResponse{};
    };
    control_.place.path = (folder_ / "rank.log").string();
    std::ofstream{folder_ / "rank.log"} << "says";
    EXPECT_EQ(good(log), "says");
    hang(8);
    EXPECT_EQ(log().status, 503);
    EXPECT_EQ(get("").status, 200);
}

TEST_F(EvidenceRoutesTest, ALogIsFollowedAwayFromTheControlThread) {
    control_.place.path = (folder_ / "rank.log").string();
    std::ofstream{folder_ / "rank.log"} << "says";
    hang(8);
    auto followed = std::async(std::launch::async, [this] {
        return server_->call("GET", "/v1/jobs/" + std::string{kJob} + "/logs?rank=0&follow=true",
                             "user-token");
    });
    EXPECT_EQ(followed.wait_for(300ms), std::future_status::timeout) << "read with no reader free";
    EXPECT_EQ(get("").status, 200) << "the control thread is free";
    let_go();
    const auto response = followed.get();
    ASSERT_TRUE(response);
    EXPECT_EQ(response->body, "says") << "and goes on when the file system does";
}

// Whoever came while four others read was refused: of the followers of one attempt's logs, which
// all look at the same moments, most got nothing for seconds.
TEST_F(EvidenceRoutesTest, ManyWhoReadOneFolderAllGetTheirAnswer) {
    std::vector<std::future<int>> answers;
    for (int i = 0; i < 24; ++i) {
        answers.push_back(std::async(std::launch::async, [this] {
            int good = 0;
            for (int turn = 0; turn < 20; ++turn) {
                good += get("/state.txt").body == "asleep" ? 1 : 0;
            }
            return good;
        }));
    }
    for (auto& answer : answers) {
        EXPECT_EQ(answer.get(), 20);
    }
}

// Four reads of one dead file system took the files of every job from everybody.
TEST_F(HangingFilesTest, AFolderWhoseReadsDoNotReturnHasNoMoreOfThem) {
    const auto state = [this] { return get("/state.txt"); };
    std::vector<std::shared_ptr<void>> held;
    for (int i = 0; i < 4; ++i) {
        held.push_back(std::make_shared<bool>());
        (*context_.reads)[folder_.path().string()].push_back(held.back());
    }
    EXPECT_EQ(state().status, 503);
    control_.evidence_at.directory = (folder_ / "other").string();
    std::filesystem::create_directories(folder_ / "other/evidence");
    std::ofstream{folder_ / "other/evidence/state.txt"} << "another job's";
    EXPECT_EQ(good(state), "another job's");
    control_.evidence_at.directory = folder_.path().string();
    held.pop_back();
    EXPECT_EQ(good(state), "asleep");
}

}  // namespace
}  // namespace lockstep
