// What a rank says to its agent over LOCKSTEP_SOCKET: one JSON object per SEQPACKET message.
// job/README.md documents the protocol. Pure; any thread.
//
//   {"op":"report","step":12,"epoch":0,"loss":0.53,"step_seconds":0.021,…}     no answer
//   {"op":"checkpoint","step":200,"path":"…"}                                   no answer
//   {"op":"phase","phase":"init|train|eval|checkpoint"}                         no answer
//   {"op":"hello","rank":3,"local_rank":1,"world_size":4}                       none, or to "id"
//   {"op":"exception","pid":…,"final":true,"time":…,"type":"…",…}               no answer
//   {"op":"set|multi_set|get|multi_get|wait|add|cas|delete|barrier","id":7,…}
//                                                           {"id":7,"ok":true,"value":…}
//
// Of a report, "epoch", "total_steps" and every metric become columns of the telemetry batch. With
// "kind":"micro" the loss becomes the column micro_loss and with "kind":"epoch" epoch_loss, so that
// the column loss always means one optimizer step. busy_seconds is computed as
// step − comm_wait − data_wait when the rank sent step_seconds and one of the waits but not itself.
// step_seconds that a rank never sends is the time between its losses (step_timer.hpp).
#pragma once

#include "job/agent/ranks/rank_identity.hpp"
#include "job/base/result.hpp"
#include "job/model/failure.hpp"
#include "job/model/wire/wire.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {

struct RankReport {
    std::int64_t step = -1;  // -1 = not given
    double time = 0;         // seconds since the Unix epoch
    std::vector<std::pair<std::string, double>> metrics;
    bool has_loss = false;
};
struct RankCheckpoint {
    std::int64_t step = 0;
    std::string path;
};
// 0 init, 1 train, 2 eval, 3 checkpoint: the value of the column phase_code.
struct RankPhase {
    int code = 0;
};
struct RankKeyRequest {
    std::int64_t id = 0;       // the rank's own number for it
    wire::KeyRequest request;  // id, rank and generation are filled in by the agent
};
// A process says which rank it is, and of how many: to torch, to Paddle. With a descriptor: the
// reading end of a pipe that it prints into once it was answered.
struct RankHello {
    RankIdentity identity;
    std::optional<std::int64_t> id;  // present when it waits for an answer
};
using RankMessage =
    std::variant<RankReport, RankCheckpoint, RankPhase, RankKeyRequest, ExceptionNote, RankHello>;

struct BadRankMessage {
    std::optional<std::int64_t> id;  // present when the rank waits for an answer
    std::string reason;
};

// `now` stamps reports that carry no time: seconds since the Unix epoch.
tl::expected<RankMessage, BadRankMessage> parse_rank_message(std::string_view text, double now);

// The answer to a key operation `op` with the rank's `id`.
std::string encode_rank_answer(std::int64_t id, wire::KvOp op, const wire::KeyReply& reply);
// To a hello with an id: whether the process is one of the ranks of this node.
std::string encode_hello_answer(std::int64_t id, bool known);
// Without an id, since the request could not be read: it is for whatever the rank waits for.
std::string encode_rank_refusal(std::optional<std::int64_t> id, std::string_view error,
                                std::string_view message);

}  // namespace lockstep
