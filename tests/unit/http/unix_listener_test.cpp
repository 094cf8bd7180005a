// HTTP and agents' WebSockets over a Unix socket: for whom it is, and what replaces it.
#include "job/async/unix_socket.hpp"
#include "job/async/ws_client.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/http/session_fixture.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

// Says what it hears.
class UnixEcho final : public AgentSession {
  public:
    explicit UnixEcho(std::shared_ptr<AgentPeer> peer) : peer_(std::move(peer)) {}
    void on_text(std::string_view bytes) override { peer_->send({false, std::string{bytes}}); }
    void on_binary(std::string_view) override {}
    void on_closed() override { peer_.reset(); }

  private:
    std::shared_ptr<AgentPeer> peer_;
};

class UnixListenerTest : public SessionTest {
  protected:
    void listen_at(const std::filesystem::path& path, HttpSettings settings = {}) {
        gate_.answer = [](std::shared_ptr<AgentPeer> peer) {
            return Result<std::shared_ptr<AgentSession>>{
                std::make_shared<UnixEcho>(std::move(peer))};
        };
        start(std::move(settings));
        const Status open = server_->on_thread([&] { return server_->server().listen_unix(path); });
        ASSERT_TRUE(open) << open.error().text();
    }
    static Result<ClientResponse> ask(const std::filesystem::path& path, const std::string& target,
                                      const std::string& token = "user-token") {
        ClientRequest request;
        request.target = target;
        request.headers = {{"Authorization", "Bearer " + token}};
        request.deadline = 10s;
        return http_request_now(at(path), std::move(request));
    }
    static Endpoint at(const std::filesystem::path& path) {
        Endpoint endpoint;
        endpoint.unix_path = path.string();
        return endpoint;
    }

    test::TemporaryFolder folder_;
    const std::filesystem::path path_ = folder_ / "lockstepd.sock";
};

// It was one more connection of 127.0.0.1: whoever had filled the port kept out its own programs.
TEST_F(UnixListenerTest, ThoseOfThePortDoNotKeepItsProgramsOut) {
    HttpSettings settings;
    settings.limits.connections = 2;
    listen_at(path_, std::move(settings));
    RawClient one{server_->port()};
    RawClient two{server_->port()};
    for (RawClient* client : {&one, &two}) {
        client->send(
            "GET /private HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer user-token\r\n\r\n");
        EXPECT_NE(client->read_until("uma"), "");
    }
    RawClient three{server_->port()};
    EXPECT_THAT(three.read_to_end(), HasSubstr("503"));
    const auto near = ask(path_, "/private");
    ASSERT_TRUE(near.has_value()) << near.error().message;
    EXPECT_EQ(near->body, "uma");
}

TEST_F(UnixListenerTest, RequestsAndAgentsComeThroughItWithTheirTokens) {
    listen_at(path_);
    EXPECT_EQ(ask(path_, "/private")->body, "uma");
    EXPECT_EQ(ask(path_, "/private", "wrong")->status, 401);
    EXPECT_EQ(ask(path_, "/large")->body.size(), 8U << 20U);
    net::io_context io{1};
    WsClient client{io};
    std::string heard;
    std::string local;
    const auto talk = [&]() -> Task<void> {
        const Status connected = co_await client.connect(at(path_), "/v1/agent", "ticket", 10s);
        EXPECT_TRUE(connected.has_value());
        local = client.local_address();
        WsMessage hello{false, "hello"};
        const Status sent = co_await client.write(std::move(hello));
        EXPECT_TRUE(sent.has_value());
        const auto answer = co_await client.read();
        heard = answer ? answer->bytes : answer.error().message;
        client.close();
    };
    net::co_spawn(io, talk(), [](const std::exception_ptr& error) { EXPECT_EQ(error, nullptr); });
    io.run();
    EXPECT_EQ(heard, "hello");
    EXPECT_EQ(local, "127.0.0.1");
}

TEST_F(UnixListenerTest, ItIsItsUsersAloneAndReplacesWhatAKilledOneLeft) {
    {
        std::ofstream{path_} << "a file of that name";
    }
    listen_at(path_);
    struct stat info = {};
    ASSERT_EQ(::stat(path_.c_str(), &info), 0);
    EXPECT_TRUE(S_ISSOCK(info.st_mode));
    EXPECT_EQ(info.st_mode & 0777U, 0600U);
    EXPECT_EQ(ask(path_, "/open")->status, 200);
    server_.reset();
    const auto gone = ask(path_, "/open");
    ASSERT_FALSE(gone);
    EXPECT_EQ(gone.error().code, Errc::unavailable);
    EXPECT_THAT(gone.error().message, HasSubstr(path_.string()));
    const auto never = ask(folder_ / "none.sock", "/open");
    ASSERT_FALSE(never);
    EXPECT_THAT(never.error().message, HasSubstr("No such file"));
}

// sun_path holds 107 bytes.
TEST_F(UnixListenerTest, PathsMayBeLong) {
    const auto deep = folder_ / std::string(120, 'd');
    std::filesystem::create_directory(deep);
    listen_at(deep / "lockstepd.sock");
    EXPECT_EQ(ask(deep / "lockstepd.sock", "/private")->body, "uma");
}

// Who had bound the port of a daemon that was down was told tokens.
TEST_F(UnixListenerTest, AnotherUsersListenerIsToldNothing) {
    if (::geteuid() != 0) {
        GTEST_SKIP() << "only root can be two users";
    }
    std::filesystem::permissions(folder_.path(), std::filesystem::perms::all);
    std::array<int, 2> said{};
    ASSERT_EQ(::pipe2(said.data(), O_CLOEXEC), 0);
    constexpr uid_t kStranger = 4711;
    constexpr uid_t kUser = 4712;
    const pid_t stranger = ::fork();
    if (stranger == 0) {
        net::io_context io{1};
        const bool is = ::setresuid(kStranger, kStranger, kStranger) == 0;
        auto acceptor = listen_unix(io, path_, 1);
        ::chmod(path_.c_str(), 0777);
        const char good = is && acceptor ? 'y' : 'n';
        if (::write(said[1], &good, 1) == 1) {
            ::pause();
        }
        ::_exit(0);
    }
    char good = 'n';
    ASSERT_EQ(::read(said[0], &good, 1), 1);
    EXPECT_EQ(good, 'y');
    const pid_t user = ::fork();
    if (user == 0) {
        const bool is = ::setresuid(kUser, kUser, kUser) == 0;
        const auto answer = ask(path_, "/private");
        ::_exit(is && !answer && answer.error().code == Errc::denied ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(user, &status, 0), user);
    EXPECT_EQ(status, 0);
    ::kill(stranger, SIGKILL);
    ASSERT_EQ(::waitpid(stranger, &status, 0), stranger);
    ::close(said[0]);
    ::close(said[1]);
}

}  // namespace
}  // namespace lockstep
