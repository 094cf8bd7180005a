#include "job/async/task_group.hpp"

#include "job/base/check.hpp"
#include "job/base/log.hpp"

#include <boost/version.hpp>

#include <cstdlib>
#include <exception>
#include <string>

namespace lockstep {

// Boost's co_spawn() posts the beginning of a coroutine to 1.74; later it dispatches it
// (seen: 1.81), which on the io_context's own thread is a call within spawn().
#if BOOST_VERSION > 107400
namespace {

Task<void> begin_by_post(net::io_context& io, Task<void> task) {
    co_await net::post(io, net::use_awaitable);
    co_await std::move(task);
}

}  // namespace
#endif

TaskGroup::~TaskGroup() {
    // An io_context that was stopped destroys its frames after us; only a live one may not have
    // any.
    LOCKSTEP_CHECK(running_ == 0 || io_.stopped());
}

void TaskGroup::spawn(std::string_view name, Task<void> task) {
    ++running_;
#if BOOST_VERSION > 107400
    task = begin_by_post(io_, std::move(task));
#endif
    net::co_spawn(
        io_, std::move(task), [this, title = std::string{name}](const std::exception_ptr& error) {
            if (error) {
                std::string what = "unknown";
                try {
                    std::rethrow_exception(error);
                } catch (const std::exception& known) {
                    what = known.what();
                }
                log::error("coroutine ended with an exception", {{"task", title}, {"what", what}});
                std::abort();
            }
            if (--running_ == 0) {
                idle_.cancel();
            }
        });
}

Task<void> TaskGroup::join() {
    while (running_ > 0) {
        ErrorCode ec;
        co_await idle_.async_wait(into(ec));
        idle_.expires_at(net::steady_timer::time_point::max());
    }
}

}  // namespace lockstep
