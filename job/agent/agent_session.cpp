#include "job/agent/agent_session.hpp"

#include "job/async/http_client.hpp"
#include "job/async/sleep.hpp"
#include "job/base/files.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

using SteadyClock = std::chrono::steady_clock;

}  // namespace

std::chrono::milliseconds first_connect_delay(std::int32_t node_rank, std::int32_t nodes) {
    return std::chrono::milliseconds{nodes <= limits::kCallersAtOnce
                                         ? 0
                                         : node_rank * std::int64_t{1000} /
                                               limits::kCallersPerSecond};
}

Session::Session(TaskGroup& tasks, Node& node, std::filesystem::path attempt_file, Timing timing)
    : sender_(tasks.io()),
      node_(node),
      attempt_file_(std::move(attempt_file)),
      timing_(timing),
      client_(tasks.io()),
      wake_timer_(tasks.io()),
      retry_timer_(tasks.io()),
      delay_(timing.first_retry),
      lost_at_(SteadyClock::now()) {
    wake_timer_.expires_at(net::steady_timer::time_point::max());
}

Task<void> Session::run() {
    if (timing_.first_connect > std::chrono::milliseconds{0}) {
        co_await sleep_on(retry_timer_, timing_.first_connect);
    }
    while (!stopped_) {
        const auto began = SteadyClock::now();
        const Status ended = co_await connect_once();
        if (stopped_) {
            break;
        }
        if (std::exchange(connected_, false)) {
            node_.disconnected();
            lost_at_ = SteadyClock::now();
            if (std::exchange(drained_, false)) {
                log::info("the daemon is being stopped; waiting for the next one");
            } else {
                log::warn("connection to the daemon lost", {{"why", ended.error().message}});
            }
            if (SteadyClock::now() - began > std::chrono::seconds{1}) {
                delay_ = timing_.first_retry;
            }
        } else {
            log::debug("no connection to the daemon", {{"why", ended.error().message}});
        }
        const bool denied = ended.error().code == Errc::denied;
        if (!denied) {
            denied_since_.reset();
        } else if (!denied_since_) {
            denied_since_ = SteadyClock::now();
            log::warn("no good connection to the daemon yet", {{"why", ended.error().message}});
        } else if (SteadyClock::now() - *denied_since_ >=
                   (node_.ranks_running() ? timing_.denied_running : timing_.denied)) {
            node_.fence(ended.error().message);
            break;
        }
        if (node_.ranks_running()) {
            lost_at_ = SteadyClock::now();  // however long the daemon was away while they ran
        } else if (SteadyClock::now() - lost_at_ >= timing_.orphan) {
            node_.give_up(ended.error().message);
            break;
        }
        co_await sleep_on(retry_timer_, next_delay());
    }
}

// Doubled from try to try, and anywhere between half of it and all of it: thousands of agents lose
// a restarted daemon at the same moment.
std::chrono::milliseconds Session::next_delay() {
    const auto delay = delay_;
    delay_ = std::min(delay_ * 2, timing_.last_retry);
    std::uniform_int_distribution<std::int64_t> spread{delay.count() / 2, delay.count()};
    return std::chrono::milliseconds{spread(random_)};
}

// One connection from the dial to its end; always returns an error.
Task<Status> Session::connect_once() {
    const auto text = read_file(attempt_file_, limits::kAttemptFileBytes);
    LOCKSTEP_CO_TRY(text);
    const auto file = wire::decode_attempt_file(*text);
    if (!file) {
        co_return fail(file.error().in(attempt_file_.string()));
    }
    auto endpoint = parse_endpoint(file->url);
    LOCKSTEP_CO_TRY(endpoint);
    endpoint->fingerprint = file->fingerprint;
    endpoint->unix_path = file->socket;
    Status status = co_await client_.connect(*endpoint, "/v1/agent", file->ticket, timing_.connect);
    if (!status) {
        co_return status;
    }
    status = co_await greet();
    if (!status) {
        client_.close();
        co_return status;
    }
    connected_ = true;
    sending_ = true;
    sender_.spawn("send", send_loop());
    for (;;) {
        auto message = co_await client_.read();
        if (!message) {
            status = fail(std::move(message).error());
            break;
        }
        const auto decoded = wire::decode_daemon(message->bytes);
        if (!decoded) {
            // A newer daemon may say what this agent does not know.
            log::warn("message ignored", {{"why", decoded.error().message}});
            continue;
        }
        drained_ = drained_ || std::holds_alternative<wire::Drain>(*decoded);
        node_.handle(*decoded);
    }
    sending_ = false;
    client_.close();
    wake_timer_.cancel();
    co_await sender_.join();
    co_return status;
}

// HELLO, then WELCOME (or FENCED).
Task<Status> Session::greet() {
    WsMessage hello;
    hello.bytes = wire::encode(wire::AgentMessage{node_.hello()});
    const Status sent = co_await client_.write(std::move(hello));
    if (!sent) {
        co_return sent;
    }
    const auto answer = co_await client_.read();
    LOCKSTEP_CO_TRY(answer);
    const auto message = wire::decode_daemon(answer->bytes);
    if (!message) {
        co_return fail(message.error().in("instead of WELCOME"));
    }
    if (const auto* fenced = std::get_if<wire::Fenced>(&*message)) {
        node_.fence(fenced->message);
        co_return fail(Errc::denied, fenced->message);
    }
    const auto* welcome = std::get_if<wire::Welcome>(&*message);
    if (welcome == nullptr) {
        co_return fail(Errc::invalid, "the daemon did not say WELCOME");
    }
    denied_since_.reset();
    node_.welcome(*welcome, client_.local_address());
    co_return Status{};
}

Task<void> Session::send_loop() {
    while (sending_) {
        auto frame = node_.outbox().next();
        if (!frame) {
            ErrorCode ec;
            co_await wake_timer_.async_wait(into(ec));
            wake_timer_.expires_at(net::steady_timer::time_point::max());
            continue;
        }
        WsMessage message;
        message.binary = frame->binary;
        message.bytes = std::move(frame->bytes);
        const Status sent = co_await client_.write(std::move(message));
        if (!sent) {
            client_.close();
            break;
        }
    }
}

void Session::wake() {
    wake_timer_.cancel();
}

void Session::stop() {
    stopped_ = true;
    client_.close();
    wake_timer_.cancel();
    retry_timer_.cancel();
}

}  // namespace lockstep
