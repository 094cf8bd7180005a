// Stands in for lockstepd behind Client's Send: answers by the first route that fits and remembers
// what was asked. One thread.
#pragma once

#include "job/cli/commands.hpp"
#include "job/cli/context.hpp"

#include <functional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::cli {

class FakeDaemon {
  public:
    using Handler = std::function<Result<ClientResponse>(const ClientRequest&)>;

    // `start`: "METHOD /path…"; the first route whose beginning fits answers.
    void on(std::string start, Handler handler) {
        routes_.emplace_back(std::move(start), std::move(handler));
    }
    void on(std::string start, int status, std::string body) {
        on(std::move(start), [status, body](const ClientRequest&) -> Result<ClientResponse> {
            return ClientResponse{status, body, {}};
        });
    }
    Client client(const std::string& where = "http://fake:1", const std::string& token = "secret",
                  const std::string& token_from = "LOCKSTEP_TOKEN") {
        return Client([this](ClientRequest request) { return answer(std::move(request)); }, where,
                      token, token_from);
    }
    std::vector<ClientRequest> asked;

  private:
    Result<ClientResponse> answer(ClientRequest request) {
        asked.push_back(request);
        const std::string line = request.method + " " + request.target;
        for (const auto& [start, handler] : routes_) {
            if (line.compare(0, start.size(), start) == 0) {
                return handler(request);
            }
        }
        return ClientResponse{404, R"({"detail":"no such thing"})", {}};
    }
    std::vector<std::pair<std::string, Handler>> routes_;
};

class StoppedClock final : public Clock {
  public:
    UnixMillis wall() const override { return wall_; }
    std::chrono::steady_clock::time_point steady() const override {
        return std::chrono::steady_clock::time_point{} + std::chrono::milliseconds{wall_};
    }
    void advance(std::chrono::milliseconds time) { wall_ += time.count(); }

  private:
    UnixMillis wall_ = 1'763'687'000'000;  // 2025-11-21T01:03:20Z
};

inline constexpr const char* kId = "ls-01JCXW3V5N8Q2R7T9ZABCDEFGH";

// A job as lockstepd answers it.
inline std::string job_json(const std::string& state) {
    return std::string(R"({"id":")") + kId + R"(","name":"demo","state":")" + state + R"("})";
}

// A command line in a pipe of 80 columns whose sleeps only move the clock.
class Cli {
  public:
    explicit Cli(FakeDaemon& daemon) : client(daemon.client()) {}
    Exit verb(const std::string& name) { return run_verb(context, name); }

    Options options;
    Terminal terminal;
    StoppedClock clock;
    Client client;
    std::ostringstream out, err;
    std::string watched;
    std::function<void()> on_sleep = [] {};
    Context context{options,
                    terminal,
                    client,
                    clock,
                    [this](std::chrono::milliseconds time) {
                        clock.advance(time);
                        on_sleep();
                    },
                    out,
                    err,
                    [this](const std::string& id) { watched = id; }};
};

}  // namespace lockstep::cli
