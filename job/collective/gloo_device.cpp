#include "job/collective/gloo_device.hpp"

#include <gloo/transport/tcp/device.h>
#include <sched.h>
#include <signal.h>

#include <csignal>

namespace lockstep {
namespace {

// Gloo's thread has no lock while another thread sends or begins to receive, and asks epoll again,
// which answers at once, until it gets it. If its wake-up has pushed that other thread off its
// core, it asks until the scheduler's next tick: 4 ms, where a message takes 0.1. As SCHED_BATCH it
// pushes nobody off a core when it wakes. A thread begins with the policy of the one that makes it.
class NewThreadsWait {
  public:
    NewThreadsWait() : was_(::sched_getscheduler(0)) {
        if (was_ == SCHED_OTHER) {
            set(SCHED_BATCH);
        }
    }
    ~NewThreadsWait() {
        if (was_ == SCHED_OTHER) {
            set(SCHED_OTHER);
        }
    }
    NewThreadsWait(const NewThreadsWait&) = delete;
    NewThreadsWait& operator=(const NewThreadsWait&) = delete;

  private:
    // Best effort: Linux lets every thread go between these two.
    static void set(int policy) {
        const sched_param none{};
        static_cast<void>(::sched_setscheduler(0, policy, &none));
    }

    int was_;
};

// Gloo writes without MSG_NOSIGNAL: the first write after a peer has left would kill this process
// before the failure could be reported. A handler of the program's own is left alone.
void outlive_lost_peers() {
    struct sigaction current = {};
    if (::sigaction(SIGPIPE, nullptr, &current) == 0 && (current.sa_flags & SA_SIGINFO) == 0 &&
        current.sa_handler == SIG_DFL) {
        ::signal(SIGPIPE, SIG_IGN);
    }
}

}  // namespace

std::shared_ptr<gloo::transport::Device> make_gloo_device(const std::string& address) {
    outlive_lost_peers();
    gloo::transport::tcp::attr attributes;
    attributes.hostname = address.empty() ? "127.0.0.1" : address;
    const NewThreadsWait quiet;
    return gloo::transport::tcp::CreateDevice(attributes);
}

}  // namespace lockstep
