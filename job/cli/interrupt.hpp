// Ctrl-C while `lockstep run` stays with its job: the first one leaves the job running, a second
// one within two seconds cancels it, as srun does. A thread of its own waits for the signals, so
// that what it does then is not bound to what a signal handler may do.
#pragma once

#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace lockstep::cli {

// Work that would leave something behind if it were cut off: an interrupt asks it to end instead.
// Any thread.
class Stop {
  public:
    // From now on an interrupt only asks.
    void begin();
    // The work is over: whether it was asked to end.
    bool end();
    bool asked() const;
    // False: there is no such work, or it has been asked before.
    bool ask();

  private:
    mutable std::mutex guard_;
    bool heeded_ = false;
    bool asked_ = false;
};

class Interrupts {
  public:
    // `cancel`: ends the job; false, with the reason printed, when that could not be asked for.
    // Called from the other thread, as the last thing that this program does. Blocks SIGINT and
    // SIGTERM for the calling thread and those it starts.
    // `cancel_verb`: what does the same by hand, to be followed by the id.
    // `lockstep`: how this one was called, with the address that it was given (typed.hpp).
    // `stop`: work that is asked to end; a second interrupt ends the program all the same.
    explicit Interrupts(std::function<bool(const std::string& id)> cancel,
                        std::string lockstep = "lockstep", std::string cancel_verb = "cancel",
                        Stop* stop = nullptr);
    Interrupts(const Interrupts&) = delete;
    Interrupts& operator=(const Interrupts&) = delete;
    ~Interrupts();

    // The job that is stayed with; "" = none.
    void watching(const std::string& id);
    // Runs `pause`, in which alone an interrupt is told of: what is drawn stays whole.
    void while_idle(const std::function<void()>& pause);

  private:
    void wait();
    void on_interrupt(int number);

    std::function<bool(const std::string& id)> cancel_;
    const std::string lockstep_;
    const std::string cancel_verb_;
    Stop* const stop_;
    std::timed_mutex turn_;  // held while something is being printed
    std::mutex guard_;       // of id_
    std::string id_;
    std::thread thread_;
};

}  // namespace lockstep::cli
