#include "job/collective/gloo_watch.hpp"

#include "job/collective/running_time.hpp"

#include <gloo/common/error.h>
#include <gloo/transport/context.h>
#include <gloo/transport/unbound_buffer.h>
#include <gloo/types.h>

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using Ranks = std::vector<int>;
using GlooBuffer = gloo::transport::UnboundBuffer;

// Nothing is ever sent to it; beside the slots of gloo.cpp.
constexpr std::uint8_t kWatchSlot = 0x42;
constexpr milliseconds kForever = std::chrono::hours{24 * 365};
constexpr milliseconds kNow{1};  // to Gloo 0 can mean that there is no timeout
constexpr milliseconds kWatchEvery{100};
// A wait of at least so long is ended by the watch, which counts time in which this process ran;
// Gloo's own clock runs on while it is suspended.
constexpr milliseconds kCounted{1'000};

class WatchedBuffer;

// Who is lost, and the buffers that may wait for them. Any thread.
class Ledger {
  public:
    explicit Ledger(WatchedGloo::Name name) : name_(std::move(name)) {}
    void add(WatchedBuffer* buffer) {
        const std::lock_guard lock{mutex_};
        buffers_.insert(buffer);
    }
    void remove(WatchedBuffer* buffer) {
        const std::lock_guard lock{mutex_};
        buffers_.erase(buffer);
    }
    void lost(int rank);
    // So much time has passed for everybody who waits.
    void pass(RunningTime::Clock::duration time);
    std::mutex& mutex() { return mutex_; }
    // With the mutex held: nobody of these is left.
    bool are_gone(const Ranks& ranks) const {
        return !ranks.empty() && std::all_of(ranks.begin(), ranks.end(),
                                             [&](int rank) { return gone_.contains(rank); });
    }

    std::string text_of(const Ranks& ranks) const {
        std::string out;
        for (const int rank : ranks) {
            out += (out.empty() ? "rank " : ", ") + std::to_string(name_(rank));
        }
        return out;
    }

  private:
    const WatchedGloo::Name name_;
    std::mutex mutex_;
    std::set<int> gone_;
    std::set<WatchedBuffer*> buffers_;
};

// One of Gloo's buffers, as one for each rank that it is used with: what a wait is for is known
// then. Gloo's algorithms count the waits of a buffer, so the oldest operation may be the one that
// is waited for. One thread at a time uses it, as Gloo has it.
class WatchedBuffer final : public GlooBuffer {
  public:
    WatchedBuffer(std::shared_ptr<gloo::transport::Context> transport,
                  std::shared_ptr<Ledger> ledger, milliseconds patience, void* data,
                  std::size_t bytes)
        : GlooBuffer(data, bytes),
          transport_(std::move(transport)),
          ledger_(std::move(ledger)),
          patience_(patience) {
        ledger_->add(this);
    }
    ~WatchedBuffer() override { ledger_->remove(this); }
    WatchedBuffer(const WatchedBuffer&) = delete;
    WatchedBuffer& operator=(const WatchedBuffer&) = delete;

    bool waitRecv(int* rank, milliseconds timeout) override {
        return wait(receives_, timeout, [&](GlooBuffer& buffer, milliseconds most) {
            return buffer.waitRecv(rank, most);
        });
    }
    bool waitSend(int* rank, milliseconds timeout) override {
        return wait(sends_, timeout, [&](GlooBuffer& buffer, milliseconds most) {
            return buffer.waitSend(rank, most);
        });
    }
    void abortWaitRecv() override { abort(receives_, &GlooBuffer::abortWaitRecv); }
    void abortWaitSend() override { abort(sends_, &GlooBuffer::abortWaitSend); }

    void send(int to, std::uint64_t slot, std::size_t offset, std::size_t bytes) override {
        buffer_of(sends_, {to}).send(to, slot, offset, bytes);
        sends_.begun.push_back({to});
    }
    void recv(int from, std::uint64_t slot, std::size_t offset, std::size_t bytes) override {
        buffer_of(receives_, {from}).recv(from, slot, offset, bytes);
        receives_.begun.push_back({from});
    }
    void recv(std::vector<int> from, std::uint64_t slot, std::size_t offset,
              std::size_t bytes) override {
        buffer_of(receives_, from).recv(from, slot, offset, bytes);
        receives_.begun.push_back(std::move(from));
    }

    // With the ledger's mutex held: ends a wait that nobody is left to end.
    void wake() {
        if (receives_.waiting != nullptr && ledger_->are_gone(receives_.begun.front())) {
            receives_.waiting->abortWaitRecv();
        }
        if (sends_.waiting != nullptr && ledger_->are_gone(sends_.begun.front())) {
            sends_.waiting->abortWaitSend();
        }
    }
    // With the ledger's mutex held: ends a wait that has no time left.
    void pass(RunningTime::Clock::duration time) {
        if (receives_.waiting != nullptr && receives_.runs_out(time)) {
            receives_.waiting->abortWaitRecv();
        }
        if (sends_.waiting != nullptr && sends_.runs_out(time)) {
            sends_.waiting->abortWaitSend();
        }
    }

  private:
    struct Side {
        std::map<Ranks, std::unique_ptr<GlooBuffer>> buffers;
        std::deque<Ranks> begun;  // and not waited for, the oldest first
        // With the ledger's mutex:
        GlooBuffer* waiting = nullptr;
        RunningTime::Clock::duration left{0};  // of that wait
        bool aborted = false;                  // by the buffer's owner

        // At the moment that it does.
        bool runs_out(RunningTime::Clock::duration time) {
            const bool had = left > RunningTime::Clock::duration{0};
            left -= time;
            return had && left <= RunningTime::Clock::duration{0};
        }
    };

    GlooBuffer& buffer_of(Side& side, const Ranks& ranks) {
        std::unique_ptr<GlooBuffer>& found = side.buffers[ranks];
        if (!found) {
            found = transport_->createUnboundBuffer(ptr, size);
        }
        return *found;
    }

    void abort(Side& side, void (GlooBuffer::*how)()) {
        const std::lock_guard lock{ledger_->mutex()};
        side.aborted = true;
        if (side.waiting != nullptr) {
            (side.waiting->*how)();
        }
    }

    template <class Inner>
    bool wait(Side& side, milliseconds timeout, Inner&& inner) {
        const Ranks ranks = side.begun.empty() ? Ranks{} : side.begun.front();
        GlooBuffer& buffer = buffer_of(side, ranks);
        const milliseconds most = timeout == gloo::transport::kUnsetTimeout ? patience_ : timeout;
        const bool counted = most >= kCounted && !ranks.empty();
        {
            const std::lock_guard lock{ledger_->mutex()};
            side.left = most;
        }
        for (;;) {
            bool gone = false;
            bool late = false;
            {
                const std::lock_guard lock{ledger_->mutex()};
                if (std::exchange(side.aborted, false)) {
                    return false;
                }
                gone = ledger_->are_gone(ranks);
                late = counted && side.left <= RunningTime::Clock::duration{0};
                side.waiting = ranks.empty() ? nullptr : &buffer;
            }
            bool came = false;
            try {
                // What a lost rank did before it went still counts: it has come by now. A wait
                // that fails closes all connections.
                came = inner(buffer, gone || late ? kNow : counted ? kForever : most);
            } catch (const std::exception&) {
                settle(side);
                if (gone) {
                    throw gloo::IoException("Connection closed by peer: " +
                                            ledger_->text_of(ranks));
                }
                throw;
            }
            settle(side);
            if (came) {
                if (!side.begun.empty()) {
                    side.begun.pop_front();
                }
                return true;
            }
        }
    }

    void settle(Side& side) {
        const std::lock_guard lock{ledger_->mutex()};
        side.waiting = nullptr;
    }

    std::shared_ptr<gloo::transport::Context> transport_;
    std::shared_ptr<Ledger> ledger_;
    milliseconds patience_;
    Side receives_;
    Side sends_;
};

void Ledger::lost(int rank) {
    const std::lock_guard lock{mutex_};
    gone_.insert(rank);
    for (WatchedBuffer* one : buffers_) {
        one->wake();
    }
}

void Ledger::pass(RunningTime::Clock::duration time) {
    const std::lock_guard lock{mutex_};
    for (WatchedBuffer* one : buffers_) {
        one->pass(time);
    }
}

// What Gloo's algorithms see in place of the transport's context: their buffers come from here.
class WatchedTransport final : public gloo::transport::Context {
  public:
    WatchedTransport(std::shared_ptr<gloo::transport::Context> inner,
                     std::shared_ptr<Ledger> ledger, milliseconds patience)
        : gloo::transport::Context(inner->rank, inner->size),
          inner_(std::move(inner)),
          ledger_(std::move(ledger)),
          patience_(patience) {
        setTimeout(patience);
    }

    std::unique_ptr<gloo::transport::Pair>& getPair(int other) override {
        return inner_->getPair(other);
    }
    std::unique_ptr<gloo::transport::Pair>& createPair(int other) override {
        return inner_->createPair(other);
    }
    std::unique_ptr<GlooBuffer> createUnboundBuffer(void* data, std::size_t bytes) override {
        return std::make_unique<WatchedBuffer>(inner_, ledger_, patience_, data, bytes);
    }

  private:
    std::shared_ptr<gloo::transport::Context> inner_;
    std::shared_ptr<Ledger> ledger_;
    milliseconds patience_;
};

}  // namespace

// Has a receive on every connection that nothing is ever sent to: it fails when the connection
// does. All of them are begun before any traffic. Later would be wrong: a rank that has left with
// something of its own still under way would answer with a reset, and take that back.
class WatchedGloo::Watch {
  public:
    Watch(gloo::transport::Context& transport, std::shared_ptr<Ledger> ledger)
        : ledger_(std::move(ledger)) {
        for (int rank = 0; rank < transport.size; ++rank) {
            if (rank == transport.rank) {
                continue;
            }
            std::unique_ptr<GlooBuffer> sentinel = transport.createUnboundBuffer(nullptr, 0);
            sentinel->recv(rank, gloo::Slot::build(kWatchSlot, 0), 0, 0);
            sentinels_[rank] = std::move(sentinel);
        }
    }

    void run() {
        std::unique_lock lock{mutex_};
        RunningTime time;
        while (!ending_ && !sentinels_.empty()) {
            for (auto one = sentinels_.begin(); one != sentinels_.end();) {
                const bool lost = failed(*one->second);
                if (lost) {
                    ledger_->lost(one->first);
                }
                one = lost ? sentinels_.erase(one) : std::next(one);
            }
            ledger_->pass(time.passed());
            ends_.wait_for(lock, kWatchEvery, [this] { return ending_; });
        }
    }

    bool is_lost(int rank) const {
        const std::lock_guard lock{ledger_->mutex()};
        return ledger_->are_gone({rank});
    }

    void end() {
        {
            const std::lock_guard lock{mutex_};
            ending_ = true;
        }
        ends_.notify_all();
    }

  private:
    // An aborted wait looks at the failure first and returns at once.
    static bool failed(GlooBuffer& sentinel) {
        try {
            sentinel.abortWaitRecv();
            sentinel.waitRecv(nullptr, kForever);
            return false;
        } catch (const std::exception&) {
            return true;
        }
    }

    std::shared_ptr<Ledger> ledger_;
    std::map<int, std::unique_ptr<GlooBuffer>> sentinels_;  // of the ranks that are there
    std::mutex mutex_;
    std::condition_variable ends_;
    bool ending_ = false;
};

void WatchedGloo::watch(std::chrono::milliseconds patience, Name name) {
    auto ledger = std::make_shared<Ledger>(std::move(name));
    watch_ = std::make_shared<Watch>(*transportContext_, ledger);
    transportContext_ = std::make_shared<WatchedTransport>(std::move(transportContext_),
                                                           std::move(ledger), patience);
    thread_ = std::thread{[watch = watch_] { watch->run(); }};
}

bool WatchedGloo::is_lost(int other) const {
    return watch_->is_lost(other);
}

WatchedGloo::~WatchedGloo() {
    if (thread_.joinable()) {
        watch_->end();
        thread_.join();
    }
}

}  // namespace lockstep
