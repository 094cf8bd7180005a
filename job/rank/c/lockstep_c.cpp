// The C functions of lockstep.h over RankClient. Nothing is thrown across them.
#include "job/base/text.hpp"
#include "job/base/version.hpp"
#include "job/rank/c/lockstep.h"
#include "job/rank/checkpoint_request.hpp"
#include "job/rank/client.hpp"
#include "job/rank/process_place.hpp"
#include "job/rank/report.hpp"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace lockstep {
namespace {

// The status of lockstep.h is the place of the code in this order.
static_assert(static_cast<int>(Errc::invalid) + 1 == LOCKSTEP_INVALID &&
              static_cast<int>(Errc::unavailable) + 1 == LOCKSTEP_UNAVAILABLE &&
              static_cast<int>(Errc::timed_out) + 1 == LOCKSTEP_TIMED_OUT &&
              static_cast<int>(Errc::internal) + 1 == LOCKSTEP_INTERNAL);
constexpr double kLongestSeconds = 1e6;  // of a double that may be infinite; RankClient takes less

thread_local std::string last_error;

// The process's connection. Never destroyed: a thread may still report while the process ends.
class Connection {
  public:
    static Connection& of_process() {
        static Connection* const kOne = new Connection;
        return *kOne;
    }

    // Opened at first use, again after a fork(), and again if nobody listened the last time.
    Result<std::shared_ptr<RankClient>> client() {
        const std::lock_guard lock{*mutex_};
        if (client_) {
            return client_;
        }
        const char* path = std::getenv("LOCKSTEP_SOCKET");  // NOLINT(concurrency-mt-unsafe)
        if (path == nullptr || *path == '\0') {
            return fail(Errc::unavailable, "LOCKSTEP_SOCKET is not set: not started by Lockstep");
        }
        auto opened = RankClient::connect(path);
        LOCKSTEP_TRY(opened);
        client_ = std::move(*opened);
        say_who();
        return client_;
    }
    // Of connections that a fork() has taken away, too.
    void count_drop() { dropped_.fetch_add(1, std::memory_order_relaxed); }
    std::int64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

  private:
    Connection() : mutex_(new std::mutex) {
        ::pthread_atfork(nullptr, nullptr, [] { of_process().after_fork(); });
    }

    // Another thread of the parent may have held the mutex, or be within the client: both stay as
    // they are, unused. The socket is the parent's as well; what the child sent there would be the
    // parent's.
    void after_fork() {
        mutex_ = new std::mutex;
        new std::shared_ptr<RankClient>(std::move(client_));
        dropped_.store(0, std::memory_order_relaxed);
    }

    // With launch node the ranks of a node share a socket: each says which one it is.
    void say_who() const {
        if (!process_environment("LOCKSTEP_RANKS_PER_NODE")) {
            return;
        }
        Json hello{{"op", "hello"}};
        for (const auto& [name, variables] : {std::pair{"rank", kRankNames.launchers},
                                              std::pair{"local_rank", kLocalRankNames.launchers},
                                              std::pair{"world_size", kWorldSizeNames.launchers}}) {
            for (const char* variable : variables) {
                const auto text = process_environment(variable);
                if (const auto number = text ? to_int(*text) : std::nullopt; number) {
                    hello[name] = *number;
                    break;
                }
            }
        }
        if (hello.size() > 1) {
            client_->send_now(hello.dump());
        }
    }

    std::mutex* mutex_;  // guards client_
    std::shared_ptr<RankClient> client_;
    std::atomic<std::int64_t> dropped_{0};
};

const ProcessPlace& place() {
    static const ProcessPlace* const kOne = new ProcessPlace{read_process_place()};
    return *kOne;
}

lockstep_status remember(const Error& error) {
    last_error = error.message;
    return static_cast<lockstep_status>(static_cast<int>(error.code) + 1);
}
lockstep_status status_of(const Status& status) {
    return status ? LOCKSTEP_OK : remember(status.error());
}

// Runs `act` with the connection; errno stays as it was.
template <class Act>
lockstep_status with_client(Act act) noexcept {
    const int before = errno;
    lockstep_status out = LOCKSTEP_INTERNAL;
    try {
        auto client = Connection::of_process().client();
        out = client ? act(**client) : remember(client.error());
    } catch (const std::exception& error) {
        try {
            last_error = error.what();
        } catch (...) {
            last_error.clear();  // no memory for the words: the status alone
        }
    } catch (...) {
        last_error.clear();
    }
    errno = before;
    return out;
}
// Without an agent nothing is dropped: there is nobody to tell.
template <class Act>
bool tell(Act act) noexcept {
    bool sent = false;
    with_client([&](RankClient& client) {
        sent = act(client);
        if (!sent) {
            Connection::of_process().count_drop();
        }
        return LOCKSTEP_OK;
    });
    return sent;
}

RankClient::Timeout timeout_of(double seconds) {
    const double bounded = std::isnan(seconds) ? 0 : std::clamp(seconds, 0.0, kLongestSeconds);
    return RankClient::Timeout{static_cast<std::int64_t>(bounded * 1000)};
}
std::string_view bytes(const void* value, std::size_t size) {
    return {static_cast<const char*>(value), size};
}
Status need(bool there, const char* what) {
    return there ? Status{} : Status{fail(Errc::invalid, std::string{what} + " is NULL")};
}

lockstep_status set_key(const char* key, const void* value, std::size_t size,
                        RankClient::Write write) {
    return with_client([&](RankClient& client) {
        const Status given =
            need(key != nullptr && (value != nullptr || size == 0), "key or value");
        return status_of(given ? client.set(key, bytes(value, size), write) : given);
    });
}

}  // namespace
}  // namespace lockstep

using namespace lockstep;

const char* lockstep_version(void) {
    return kVersion.data();
}

bool lockstep_is_lockstep(void) {
    return place().managed;
}
int32_t lockstep_rank(void) {
    return place().context.rank;
}
int32_t lockstep_world_size(void) {
    return place().context.world_size;
}
int32_t lockstep_local_rank(void) {
    return place().context.local_rank;
}
int32_t lockstep_local_world_size(void) {
    return place().context.local_world_size;
}
int32_t lockstep_node_rank(void) {
    return place().context.node_rank;
}
int32_t lockstep_nodes(void) {
    return place().nodes;
}
int32_t lockstep_generation(void) {
    return place().context.generation;
}
int32_t lockstep_attempt(void) {
    return place().context.attempt;
}
const char* lockstep_job_id(void) {
    return place().context.job_id.c_str();
}
const char* lockstep_role(void) {
    return place().context.role.c_str();
}
const char* lockstep_address(void) {
    return place().context.address.c_str();
}
const char* lockstep_checkpoint_directory(void) {
    return place().context.checkpoint_directory.c_str();
}

bool lockstep_report(int64_t step, const lockstep_metric* metrics, size_t count) {
    return tell([&](RankClient& client) {
        thread_local Report report;
        const std::int64_t refused = report.refused();
        report.begin(step);
        for (std::size_t i = 0; metrics != nullptr && i < count; ++i) {
            report.metric(metrics[i].name == nullptr ? "" : metrics[i].name, metrics[i].value);
        }
        return client.send_now(report.finish()) && report.refused() == refused;
    });
}
bool lockstep_report_loss(int64_t step, double loss) {
    const lockstep_metric metric{"loss", loss};
    return lockstep_report(step, &metric, 1);
}
bool lockstep_phase(const char* name) {
    return tell([&](RankClient& client) { return name != nullptr && client.phase(name); });
}
bool lockstep_checkpoint(int64_t step, const char* path) {
    return tell(
        [&](RankClient& client) { return path != nullptr && client.checkpoint(step, path); });
}
int64_t lockstep_dropped_reports(void) {
    return Connection::of_process().dropped();
}
bool lockstep_checkpoint_requested(void) {
    return checkpoint_requested();
}

const char* lockstep_error(void) {
    return last_error.c_str();
}

lockstep_status lockstep_set(const char* key, const void* value, size_t size) {
    return set_key(key, value, size, RankClient::Write::any);
}
lockstep_status lockstep_set_once(const char* key, const void* value, size_t size) {
    return set_key(key, value, size, RankClient::Write::once);
}
lockstep_status lockstep_compare_and_set(const char* key, const void* expected,
                                         size_t expected_size, const void* value, size_t size,
                                         bool* swapped) {
    return with_client([&](RankClient& client) {
        const Status given = need(key != nullptr && (expected != nullptr || expected_size == 0) &&
                                      (value != nullptr || size == 0) && swapped != nullptr,
                                  "key, expected, value or swapped");
        if (!given) {
            return remember(given.error());
        }
        const auto done = client.cas(key, bytes(expected, expected_size), bytes(value, size));
        if (!done) {
            return remember(done.error());
        }
        *swapped = done->swapped;
        return LOCKSTEP_OK;
    });
}
lockstep_status lockstep_get(const char* key, void** value, size_t* size) {
    return with_client([&](RankClient& client) {
        const Status given =
            need(key != nullptr && value != nullptr && size != nullptr, "key, value or size");
        if (!given) {
            return remember(given.error());
        }
        const auto found = client.get(key);
        if (!found) {
            return remember(found.error());
        }
        void* copy = std::malloc(found->size() + 1);
        if (copy == nullptr) {
            return remember(Error{Errc::exhausted, "no memory for the value"});
        }
        std::memcpy(copy, found->c_str(), found->size() + 1);
        *value = copy;
        *size = found->size();
        return LOCKSTEP_OK;
    });
}
lockstep_status lockstep_wait(const char* key, double seconds) {
    return with_client([&](RankClient& client) {
        const Status given = need(key != nullptr, "key");
        return status_of(given ? client.wait({key}, timeout_of(seconds)) : given);
    });
}
lockstep_status lockstep_add(const char* key, int64_t delta, int64_t* sum) {
    return with_client([&](RankClient& client) {
        const Status given = need(key != nullptr, "key");
        if (!given) {
            return remember(given.error());
        }
        const auto done = client.add(key, delta);
        if (!done) {
            return remember(done.error());
        }
        if (sum != nullptr) {
            *sum = *done;
        }
        return LOCKSTEP_OK;
    });
}
lockstep_status lockstep_delete(const char* key, bool* deleted) {
    return with_client([&](RankClient& client) {
        const Status given = need(key != nullptr, "key");
        if (!given) {
            return remember(given.error());
        }
        const auto done = client.remove(key);
        if (!done) {
            return remember(done.error());
        }
        if (deleted != nullptr) {
            *deleted = *done;
        }
        return LOCKSTEP_OK;
    });
}
lockstep_status lockstep_barrier(const char* name, double seconds) {
    return with_client([&](RankClient& client) {
        const Status given = need(name != nullptr, "name");
        return status_of(given ? client.barrier(name, timeout_of(seconds)) : given);
    });
}

void lockstep_free(void* value) {
    std::free(value);
}
