#include "job/collective/alone.hpp"

#include <cstring>

namespace lockstep {
namespace {

// One rank: every operation is already done, or a copy. Gloo's connectFullMesh would wait for keys
// that nobody needs.
class AloneCommunicator final : public Communicator {
  public:
    std::int32_t rank() const override { return 0; }
    std::int32_t size() const override { return 1; }
    Device device() const override { return Device::cpu; }

  private:
    Status do_all_reduce(Buffer, ReduceOp, Stream) override { return {}; }
    Status do_reduce(Buffer, std::int32_t, ReduceOp, Stream) override { return {}; }
    Status do_broadcast(Buffer, std::int32_t, Stream) override { return {}; }
    Status do_all_gather(ConstBuffer mine, Buffer all, Stream) override {
        std::memmove(all.data, mine.data, mine.bytes());
        return {};
    }
    Status do_reduce_scatter(ConstBuffer all, Buffer mine, ReduceOp, Stream) override {
        std::memmove(mine.data, all.data, all.bytes());
        return {};
    }
    // Refused before: a rank cannot send to itself.
    Status do_send(ConstBuffer, std::int32_t, Stream) override { return {}; }
    Status do_recv(Buffer, std::int32_t, Stream) override { return {}; }
    Status do_barrier(Stream) override { return {}; }
    void do_abort() override {}
};

}  // namespace

std::unique_ptr<Communicator> make_alone() {
    return std::make_unique<AloneCommunicator>();
}

}  // namespace lockstep
