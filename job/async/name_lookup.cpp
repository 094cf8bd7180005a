#include "job/async/name_lookup.hpp"

#include <netdb.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <system_error>
#include <utility>

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds kLookupStopWait{1'000};  // to a thread that has its answer

Result<std::vector<tcp::endpoint>> ask(const std::string& host, const std::string& port,
                                       int flags) {
    addrinfo hints{};
    hints.ai_flags = flags;
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* list = nullptr;
    const int code = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &list);
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner{list, [](addrinfo* all) {
                                                                   if (all != nullptr) {
                                                                       ::freeaddrinfo(all);
                                                                   }
                                                               }};
    if (code != 0) {
        return fail(Errc::unavailable, host + ": " + ::gai_strerror(code));
    }
    std::vector<tcp::endpoint> out;
    for (const addrinfo* one = list; one != nullptr; one = one->ai_next) {
        tcp::endpoint endpoint;
        if (one->ai_addrlen <= endpoint.capacity()) {
            endpoint.resize(one->ai_addrlen);
            std::memcpy(endpoint.data(), one->ai_addr, one->ai_addrlen);
            out.push_back(endpoint);
        }
    }
    if (out.empty()) {
        return fail(Errc::unavailable, host + ": no address");
    }
    return out;
}

}  // namespace

// What the thread and the one who waits share: nothing of the executor, which the thread may
// outlive.
struct NameLookup::Shared {
    std::mutex mutex;  // of what follows
    bool waited_for = true;
    std::optional<Result<std::vector<tcp::endpoint>>> answer;
};

NameLookup::NameLookup(const net::any_io_executor& executor)
    : timer_(std::make_shared<net::steady_timer>(executor)), shared_(std::make_shared<Shared>()) {}

NameLookup::~NameLookup() {
    bool answered = false;
    {
        const std::lock_guard lock{shared_->mutex};
        shared_->waited_for = false;
        answered = shared_->answer.has_value();
    }
    if (thread_) {
        thread_->finish(answered ? kLookupStopWait : std::chrono::milliseconds{0});
    }
}

void NameLookup::cancel() {
    cancelled_ = true;
    timer_->cancel();
}

Task<Result<std::vector<tcp::endpoint>>> NameLookup::run(std::string host, std::string port) {
    if (auto numeric = ask(host, port, AI_NUMERICHOST | AI_NUMERICSERV)) {
        co_return std::move(*numeric);
    }
    timer_->expires_at(net::steady_timer::time_point::max());
    try {
        // The executor may be gone when the answer comes at last: it is used only while somebody
        // waits, and its timer only on its own thread.
        thread_.emplace([shared = shared_, executor = timer_->get_executor(),
                         timer = std::weak_ptr{timer_}, host, port] {
            auto answer = ask(host, port, AI_NUMERICSERV | AI_ADDRCONFIG);
            const std::lock_guard lock{shared->mutex};
            shared->answer = std::move(answer);
            if (shared->waited_for) {
                net::post(executor, [timer] {
                    if (const auto waiting = timer.lock()) {
                        waiting->cancel();
                    }
                });
            }
        });
    } catch (const std::system_error& error) {
        co_return fail(Errc::unavailable, host + ": no thread to ask with: " + error.what());
    }
    ErrorCode ec;
    if (!cancelled_) {
        co_await timer_->async_wait(into(ec));
    }
    const std::lock_guard lock{shared_->mutex};
    if (cancelled_ || !shared_->answer) {
        co_return fail(Errc::unavailable, host + ": its address was not found in time");
    }
    co_return std::move(*shared_->answer);
}

}  // namespace lockstep
