// What the trainer asks of CUDA itself; everything else goes through LibTorch's operations. Two
// implementations: cuda_device.cpp where LibTorch has CUDA, no_cuda_device.cpp elsewhere, which has
// no GPU. Failures are LibTorch's exceptions (c10::Error).
#pragma once

#include "job/collective/communicator.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace at {
class Tensor;
}

namespace lockstep::cuda_device {

// Whether this program's LibTorch has CUDA.
bool built();
// GPUs that this process can use; 0 also where there is no driver. Any thread.
int visible();
// Why there are none.
std::string none_because();
// "NVIDIA H100 80GB HBM3, 79 GiB".
std::string describe(int gpu);

// The calling thread's work goes to this GPU from now on, to a stream that is not the default one.
void use(int gpu);
// The calling thread's stream of its GPU.
Stream current_stream();
// Returns when the calling thread's stream has come past what was enqueued on it; false: `give_up`,
// which is asked every 100 ms, said so first.
bool finished(const std::function<bool()>& give_up);
// Of the calling thread's GPU, what nobody has: LibTorch's own cache counts as used.
std::int64_t free_bytes();
// Forgets memory that LibTorch keeps for tensors to come.
void empty_cache();

// A place in what the calling thread's stream has to do. Of the thread that made it.
class Mark {
  public:
    Mark();
    ~Mark();
    Mark(const Mark&) = delete;
    Mark& operator=(const Mark&) = delete;

    void set();
    // Until the stream has come past it; false: as of finished().
    bool wait(const std::function<bool()>& give_up);

  private:
    struct State;
    std::unique_ptr<State> state_;
};

// A second stream of the calling thread's GPU. Any thread that uses the GPU, one at a time.
class SideStream {
  public:
    SideStream();
    ~SideStream();
    SideStream(const SideStream&) = delete;
    SideStream& operator=(const SideStream&) = delete;

    Stream handle() const;
    // What is enqueued here from now on runs after what the calling thread's stream has so far.
    void wait_for_current();
    // What the calling thread's stream gets from now on runs after what is enqueued here.
    void current_waits();
    // Calls `work`: what it enqueues goes here, and the memory of the tensors that it makes is this
    // stream's. Throws what it threw.
    void run(const std::function<void()>& work);
    // The calling thread's stream uses what run() has made: its memory is given to nobody before
    // that stream has come past what it has when the tensor ends. After current_waits().
    static void current_uses(const at::Tensor& made);

  private:
    struct State;
    std::unique_ptr<State> state_;
};

// What `work` enqueues, as a CUDA graph: one launch instead of hundreds. `work` is called once and
// nothing of it is computed then; it must not wait for the GPU, and reads and writes the same
// tensors at every launch. (Without CUDA every launch calls a copy of it.) Throws what it threw;
// nothing is under capture then.
class Graph {
  public:
    explicit Graph(const std::function<void()>& work);
    ~Graph();
    Graph(const Graph&) = delete;
    Graph& operator=(const Graph&) = delete;

    // Enqueues it on the calling thread's stream.
    void launch();

  private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace lockstep::cuda_device
