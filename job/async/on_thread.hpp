// Runs a blocking call on another thread and comes back: for file work that would stall the control
// thread. The pool must outlive the call; `work` must leave no exception.
#pragma once

#include "job/async/asio.hpp"

#include <boost/asio/thread_pool.hpp>

#include <functional>
#include <memory>
#include <utility>

namespace lockstep {

template <class T>
Task<T> on_thread(net::thread_pool& pool, std::function<T()> work) {
    const auto home = co_await net::this_coro::executor;
    const auto start = [&pool, home, work = std::move(work)](auto handler) mutable {
        auto shared = std::make_shared<decltype(handler)>(std::move(handler));
        // The work guard keeps the home context running while the pool works.
        auto guard = net::prefer(home, net::execution::outstanding_work.tracked);
        net::post(pool, [shared, guard, work = std::move(work)] {
            auto result = std::make_shared<T>(work());
            net::post(guard, [shared, result] { (*shared)(std::move(*result)); });
        });
    };
    auto token = net::use_awaitable;
    co_return co_await net::async_initiate<decltype(token), void(T)>(std::move(start), token);
}

}  // namespace lockstep
