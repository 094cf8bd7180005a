// Takes OTLP/HTTP metrics as JSON from the ranks of this node: `POST /v1/metrics` on 127.0.0.1, one
// request a connection, as NCCL's Inspector sends them (inspector_otel.cc: a head with
// Content-Length and `Connection: close`, a body, and the status of the answer is read; what was
// not taken is lost, the plugin counts it). A caller says who it is by `Authorization: Bearer
// <token>`, which is known before its body is. Answers: 200 with {}; 400 no HTTP or what `take`
// does not understand; 401; 404; 405; 413 more than limits::kOtlpBodyBytes; 415 no JSON; 503 as
// many bodies as may be on their way.
//
// Agent thread only. It may be destroyed at any time; the TaskGroup must outlive it
// (one_request_server.hpp).
#pragma once

#include "job/async/one_request_server.hpp"
#include "job/async/task_group.hpp"
#include "job/base/limits.hpp"
#include "job/base/result.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep {

struct OtlpCaps {
    std::size_t connections = limits::kOtlpConnections;
    std::size_t body_bytes = limits::kOtlpBodyBytes;
    std::size_t transit_bytes = limits::kOtlpTransitBytes;  // bodies that are on their way
    std::chrono::milliseconds patience = limits::kOtlpPatience;
};

class OtlpReceiver {
  public:
    struct Handlers {
        // Whose token it is; nothing: nobody's.
        std::function<std::optional<std::int32_t>(std::string_view token)> who;
        // A body of theirs. False: it is not understood.
        std::function<bool(std::int32_t who, const std::string& body)> take;
        // A body of theirs is refused for its size, or because too many are on their way.
        std::function<void(std::int32_t who, int status)> left_out = [](std::int32_t, int) {};
    };
    struct Totals {
        std::size_t connections = 0;  // open
        std::size_t transit = 0;      // bytes of bodies that are on their way
        std::uint64_t taken = 0;
        std::uint64_t refused = 0;
    };

    // On a port of the system's choice.
    static Result<std::unique_ptr<OtlpReceiver>> listen(TaskGroup& tasks, Handlers handlers,
                                                        OtlpCaps caps = {});
    std::uint16_t port() const { return server_->port(); }
    Totals totals() const;

  private:
    explicit OtlpReceiver(std::unique_ptr<OneRequestServer> server) : server_(std::move(server)) {}
    std::unique_ptr<OneRequestServer> server_;
};

}  // namespace lockstep
