// What workers and parameter servers say to each other. Every pair of them has a connection of its
// own, a group of two in which the server is rank 0; a worker asks, the server answers.
#pragma once

#include "job/base/result.hpp"
#include "job/collective/communicator.hpp"
#include "job/model/spec/train_config.hpp"
#include "job/trainer/optimizer.hpp"
#include "job/trainer/parameters.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

class Strategy;
class World;

inline constexpr std::int32_t kServerOfPair = 0;
inline constexpr std::int32_t kWorkerOfPair = 1;

struct ServerAsk {
    enum class Kind : std::int64_t {
        pull,     // → parameters
        push,     // gradient follows → parameters after it was used
        load,     // parameters and moments follow, `version` is the number of updates → nothing
        state,    // → parameters, then moments
        save,     // → an answer alone, once the server has a copy; it writes its part of the
                  // checkpoint
        settled,  // async: all steps of this worker are made → how far the others are, and the
                  // parameters if none of them trains
        done,     // the last one → nothing
    };
    Kind kind = Kind::pull;
    std::int64_t version = 0;  // push: of the parameters the gradient was computed with; save: step
    std::int64_t step = 0;     // push: the worker's, which it makes with this gradient
    std::uint64_t start = 0;   // save: PartSet::start
    std::int64_t stop = 0;     // push, settled: this worker was told to stop
    std::int64_t skip = 0;     // push: the gradient is not finite, which loss scaling answers
    double rate = 0.0;         // push: the learning rate of the step
};

struct ServerAnswer {
    std::int64_t version = 0;    // updates so far; of the parameters that follow, or were copied
    std::int64_t staleness = 0;  // push: updates between `version` of the ask and this one
    std::int64_t stop = 0;       // push, settled: all workers stop after this step
    std::int64_t skipped = 0;    // push: a worker's gradient was not finite, so none was used
    std::int64_t training = 0;   // settled: OtherWorkers; parameters follow if it is 0
    std::int64_t slowest = INT64_MAX;  // settled: the same
    double squares = 0.0;              // push: Σ of the squared mean gradient of this server's part
};

template <class Message>
Status send_message(Communicator& pair, const Message& message, std::int32_t to) {
    return pair.send({&message, sizeof message, Dtype::u8, Device::cpu}, to);
}
template <class Message>
Status receive_message(Communicator& pair, Message& message, std::int32_t from) {
    return pair.recv({&message, sizeof message, Dtype::u8, Device::cpu}, from);
}

// Each server's part of the flat buffer: whole parameters, as equal as they can be; some may be
// empty.
struct ServerPart {
    std::size_t begin = 0;  // in floats
    std::size_t end = 0;
    std::vector<FlatRange> layers;  // offsets count from `begin`
    std::size_t whole = 0;          // floats of all parts
    std::int32_t index = 0;         // of the server
    std::int32_t servers = 1;

    std::size_t floats() const { return end - begin; }
};
std::vector<ServerPart> server_parts(const FlatLayout& layout, std::size_t servers);

// The strategy of a server, which has connections to `workers`, in their order. serve()
// unavailable: a worker was lost; with update sync at once, with async after the others.
std::unique_ptr<Strategy> make_server_rank(const TrainConfig& config, ServerPart part, World& world,
                                           std::vector<std::unique_ptr<Communicator>> workers);

}  // namespace lockstep
