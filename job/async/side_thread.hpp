// Blocking calls for a coroutine that must not wait for ever: they run in turn on a thread of their
// own, or on several, each is waited for until its time is over, and neither the io_context nor the
// end of the process waits for one that hangs. (on_thread() waits for all.) The io_context's thread
// only, except for the work. The io_context must outlive it, and it the coroutines.
#pragma once

#include "job/async/asio.hpp"
#include "job/async/loose_thread.hpp"

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace lockstep {

class SideThread {
  public:
    // With several threads one call that hangs holds up nobody else's. They start when needed.
    explicit SideThread(net::io_context& io, std::size_t threads = 1) : io_(io), most_(threads) {}
    // Waits a second at most for what runs; see LooseThread::abandoned().
    ~SideThread();
    SideThread(const SideThread&) = delete;
    SideThread& operator=(const SideThread&) = delete;

    // What `work` returns; nothing: it threw, `until` came first, or let_go(). Work that has not
    // begun by then never does. `work` owns all that it uses.
    template <class T>
    Task<std::optional<T>> run(std::function<T()> work,
                               std::chrono::steady_clock::time_point until) {
        const auto value = std::make_shared<std::optional<T>>();
        const auto call = std::make_shared<Call>(io_, until);
        std::function<void()> whole = [work = std::move(work), value] { value->emplace(work()); };
        const auto job = post(std::move(whole), call);
        ErrorCode ec;
        co_await call->timer.async_wait(into(ec));
        if (!call->ready) {  // then the thread may be writing to `value` this moment
            withdraw(job);
            co_return std::nullopt;
        }
        co_return std::move(*value);
    }
    // Every run() in flight ends soon, with nothing.
    void let_go();

  private:
    struct Call {
        Call(net::io_context& io, std::chrono::steady_clock::time_point until) : timer(io, until) {}
        net::steady_timer timer;
        bool ready = false;
    };
    struct Job {
        std::function<void()> work;
        std::weak_ptr<Call> call;
    };
    struct Shared {
        std::mutex mutex;  // of all below
        std::condition_variable changed;
        std::deque<std::shared_ptr<Job>> queue;
        std::size_t idle = 0;           // threads that wait for work
        net::io_context* io = nullptr;  // null: the threads are to end, and there may be none
    };
    std::shared_ptr<Job> post(std::function<void()> work, const std::shared_ptr<Call>& call);
    void withdraw(const std::shared_ptr<Job>& job);
    static void serve(const std::shared_ptr<Shared>& shared);

    net::io_context& io_;
    const std::size_t most_;
    std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
    std::vector<std::weak_ptr<Call>> calls_;
    std::vector<std::unique_ptr<LooseThread>> threads_;
};

}  // namespace lockstep
