// Work that may never come back: a stat() on a file server that is gone leaves its process in the
// kernel (state D), where no signal reaches it. It is done in a forked process of which only the
// answers are waited for; one that does not answer is killed, if it can be, and abandoned.
//
// The items run one after another in one process; behind one that hangs or throws the next process
// goes on. One thread at a time; must outlive run().
//
// Other threads of this process may run while it forks, but what they hold locked then (the dynamic
// loader's lock, a library's) stays locked in the forked process: work that wants it does not
// answer. So threads that load libraries start when run() is over (GpuReports::follow()).
#pragma once

#include "job/async/asio.hpp"

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

class Errands {
  public:
    explicit Errands(net::io_context& io) : io_(io), timer_(io) {}
    ~Errands() { cancel(); }
    Errands(const Errands&) = delete;
    Errands& operator=(const Errands&) = delete;

    // Returns its index. `work` runs in the forked process: it may read and compute, its answer is
    // at most 256 KiB. `patience`: for this item.
    std::size_t add(std::function<std::string()> work, std::chrono::milliseconds patience);
    // Ends when every item has answered, was given up, or `budget` is over.
    Task<void> run(std::chrono::milliseconds budget);
    // Whether its turn came and it had all its patience: what the budget or cancel() cut short, or
    // could not be begun, is not known to be silent.
    bool asked(std::size_t index) const { return items_[index].asked; }
    // Nothing: it did not answer, or was not asked.
    const std::optional<std::string>& answer(std::size_t index) const {
        return items_[index].answer;
    }
    // Ends run() soon.
    void cancel();

  private:
    using Pipe = net::posix::stream_descriptor;
    struct Item {
        std::function<std::string()> work;
        std::chrono::milliseconds patience;
        std::optional<std::string> answer;
        bool asked = false;
    };
    bool start();
    [[noreturn]] void serve(int out) const noexcept;
    bool take_frames();
    void drop();
    Task<void> listen(std::chrono::steady_clock::time_point end);

    net::io_context& io_;
    net::steady_timer timer_;
    std::vector<Item> items_;
    std::size_t next_ = 0;
    std::shared_ptr<Pipe> pipe_;
    std::string buffer_;
    int child_ = -1;      // known once it has said so, until it has ended; no child of this process
    bool begun_ = false;  // it has said so
    bool cancelled_ = false;
};

}  // namespace lockstep
