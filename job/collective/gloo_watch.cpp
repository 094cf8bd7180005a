#include "job/collective/gloo_watch.hpp"

#include <gloo/common/error.h>
#include <gloo/transport/context.h>
#include <gloo/transport/unbound_buffer.h>
#include <gloo/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

using std::chrono::milliseconds;

// Nothing is ever sent to it; beside the slots of gloo.cpp.
constexpr std::uint8_t kWatchSlot = 0x42;
constexpr milliseconds kForever = std::chrono::hours{24 * 365};
constexpr milliseconds kNow{1};  // to Gloo 0 can mean that there is no timeout

// The receives or the sends of one buffer.
struct Waits {
    std::size_t pending = 0;  // begun and not waited for
    std::set<int> ranks;      // with which, since none was pending
    bool waiting = false;
    bool aborted = false;  // by the buffer's owner
};

class WatchedBuffer;

// Who is lost and who waits. Any thread.
class Ledger {
  public:
    void lost(const std::vector<int>& ranks);
    std::set<WatchedBuffer*> waiting;
    std::set<int> gone;
    std::mutex mutex;

    // With the mutex held. With several ranks pending it is not known whose operation has
    // finished: then what is left can still come as long as one of them is there.
    bool hopeless(const Waits& waits) const {
        return waits.pending > 0 &&
               std::includes(gone.begin(), gone.end(), waits.ranks.begin(), waits.ranks.end());
    }
};

// One of Gloo's buffers. One thread at a time waits for it, as Gloo has it.
class WatchedBuffer final : public gloo::transport::UnboundBuffer {
  public:
    WatchedBuffer(std::unique_ptr<gloo::transport::UnboundBuffer> inner,
                  std::shared_ptr<Ledger> ledger, milliseconds patience)
        : gloo::transport::UnboundBuffer(inner->ptr, inner->size),
          inner_(std::move(inner)),
          ledger_(std::move(ledger)),
          patience_(patience) {}

    bool waitRecv(int* rank, milliseconds timeout) override {
        return wait(receives_, timeout,
                    [&](milliseconds most) { return inner_->waitRecv(rank, most); });
    }
    bool waitSend(int* rank, milliseconds timeout) override {
        return wait(sends_, timeout,
                    [&](milliseconds most) { return inner_->waitSend(rank, most); });
    }
    void abortWaitRecv() override {
        mark(receives_);
        inner_->abortWaitRecv();
    }
    void abortWaitSend() override {
        mark(sends_);
        inner_->abortWaitSend();
    }
    void send(int to, std::uint64_t slot, std::size_t offset, std::size_t bytes) override {
        begin(sends_, {to});
        inner_->send(to, slot, offset, bytes);
    }
    void recv(int from, std::uint64_t slot, std::size_t offset, std::size_t bytes) override {
        begin(receives_, {from});
        inner_->recv(from, slot, offset, bytes);
    }
    void recv(std::vector<int> from, std::uint64_t slot, std::size_t offset,
              std::size_t bytes) override {
        begin(receives_, from);
        inner_->recv(std::move(from), slot, offset, bytes);
    }

    // With the ledger's mutex held: ends the waits that nobody is left to end.
    void wake() {
        if (receives_.waiting && ledger_->hopeless(receives_)) {
            inner_->abortWaitRecv();
        }
        if (sends_.waiting && ledger_->hopeless(sends_)) {
            inner_->abortWaitSend();
        }
    }

  private:
    void begin(Waits& waits, const std::vector<int>& ranks) {
        const std::lock_guard lock{ledger_->mutex};
        if (waits.pending == 0) {
            waits.ranks.clear();
        }
        ++waits.pending;
        waits.ranks.insert(ranks.begin(), ranks.end());
    }

    void mark(Waits& waits) {
        const std::lock_guard lock{ledger_->mutex};
        waits.aborted = true;
    }

    // Whether nobody is left who could end it.
    bool enter(Waits& waits) {
        const std::lock_guard lock{ledger_->mutex};
        waits.waiting = true;
        ledger_->waiting.insert(this);
        return ledger_->hopeless(waits);
    }

    void leave(Waits& waits, bool came) {
        const std::lock_guard lock{ledger_->mutex};
        waits.waiting = false;
        ledger_->waiting.erase(this);
        if (came && waits.pending > 0) {
            --waits.pending;
        }
    }

    template <class Wait>
    bool wait(Waits& waits, milliseconds timeout, Wait&& inner) {
        const auto end = std::chrono::steady_clock::now() +
                         (timeout == gloo::transport::kUnsetTimeout ? patience_ : timeout);
        for (;;) {
            const bool hopeless = enter(waits);
            const auto left =
                std::chrono::ceil<milliseconds>(end - std::chrono::steady_clock::now());
            bool came = false;
            try {
                // What the lost ranks did before they went still counts: it has come by now. A
                // wait that fails closes all connections.
                came = inner(hopeless ? kNow : std::max(left, kNow));
            } catch (const std::exception&) {
                leave(waits, false);
                if (hopeless) {
                    throw gloo::IoException("Connection closed by peer: " + lost_ranks(waits));
                }
                throw;
            }
            leave(waits, came);
            if (came) {
                return true;
            }
            const std::lock_guard lock{ledger_->mutex};
            if (std::exchange(waits.aborted, false)) {
                return false;
            }
        }
    }

    static std::string lost_ranks(const Waits& waits) {
        std::string out;
        for (const int rank : waits.ranks) {
            out += (out.empty() ? "rank " : ", ") + std::to_string(rank);
        }
        return out;
    }

    std::unique_ptr<gloo::transport::UnboundBuffer> inner_;
    std::shared_ptr<Ledger> ledger_;
    milliseconds patience_;
    Waits receives_;
    Waits sends_;
};

void Ledger::lost(const std::vector<int>& ranks) {
    const std::lock_guard lock{mutex};
    gone.insert(ranks.begin(), ranks.end());
    for (WatchedBuffer* one : waiting) {
        one->wake();
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
          patience_(patience) {}

    std::unique_ptr<gloo::transport::Pair>& getPair(int other) override {
        return inner_->getPair(other);
    }
    std::unique_ptr<gloo::transport::Pair>& createPair(int other) override {
        return inner_->createPair(other);
    }
    std::unique_ptr<gloo::transport::UnboundBuffer> createUnboundBuffer(
        void* data, std::size_t bytes) override {
        return std::make_unique<WatchedBuffer>(inner_->createUnboundBuffer(data, bytes), ledger_,
                                               patience_);
    }

  private:
    std::shared_ptr<gloo::transport::Context> inner_;
    std::shared_ptr<Ledger> ledger_;
    milliseconds patience_;
};

}  // namespace

// Waits on one buffer for a message from every other rank that never comes: it fails when one of
// the connections does. Which one it was is seen by asking all of them again.
class WatchedGloo::Watch {
  public:
    explicit Watch(std::shared_ptr<gloo::transport::Context> transport)
        : transport_(std::move(transport)), ledger_(std::make_shared<Ledger>()) {}

    const std::shared_ptr<Ledger>& ledger() const { return ledger_; }

    void run() {
        std::set<int> there;
        for (int rank = 0; rank < transport_->size; ++rank) {
            if (rank != transport_->rank) {
                there.insert(rank);
            }
        }
        while (!there.empty()) {
            const std::shared_ptr<gloo::transport::UnboundBuffer> sentinel =
                transport_->createUnboundBuffer(nullptr, 0);
            if (!publish(sentinel)) {
                return;
            }
            const std::vector<int> lost = ask(*sentinel, there);
            ledger_->lost(lost);
            for (const int rank : lost) {
                there.erase(rank);
            }
            try {
                if (!there.empty() && !sentinel->waitRecv(nullptr, kForever)) {
                    return;  // end()
                }
            } catch (const std::exception&) {
                continue;  // a connection was lost: ask which
            }
        }
    }

    void end() {
        const std::lock_guard lock{mutex_};
        ending_ = true;
        if (sentinel_) {
            sentinel_->abortWaitRecv();
        }
    }

  private:
    // Those that can be asked for nothing any more.
    static std::vector<int> ask(gloo::transport::UnboundBuffer& sentinel,
                                const std::set<int>& there) {
        std::vector<int> lost;
        for (const int rank : there) {
            try {
                sentinel.recv(rank, gloo::Slot::build(kWatchSlot, 0), 0, 0);
            } catch (const std::exception&) {
                lost.push_back(rank);
            }
        }
        return lost;
    }

    bool publish(std::shared_ptr<gloo::transport::UnboundBuffer> sentinel) {
        const std::lock_guard lock{mutex_};
        sentinel_ = std::move(sentinel);
        return !ending_;
    }

    std::shared_ptr<gloo::transport::Context> transport_;
    std::shared_ptr<Ledger> ledger_;
    std::mutex mutex_;
    bool ending_ = false;
    std::shared_ptr<gloo::transport::UnboundBuffer> sentinel_;
};

void WatchedGloo::watch(std::chrono::milliseconds patience) {
    watch_ = std::make_shared<Watch>(transportContext_);
    transportContext_ = std::make_shared<WatchedTransport>(std::move(transportContext_),
                                                           watch_->ledger(), patience);
    thread_ = std::thread{[watch = watch_] { watch->run(); }};
}

WatchedGloo::~WatchedGloo() {
    if (thread_.joinable()) {
        watch_->end();
        thread_.join();
    }
}

}  // namespace lockstep
