#include "job/trainer/exits.hpp"

#include "job/base/log.hpp"

#include <string_view>

namespace lockstep {
namespace {
// The type of which the agent takes no cause (job/model/failure.cpp).
constexpr std::string_view kPeerFault = "PeerFault";
}  // namespace

int wrong(const Error& error, RankClient* client) {
    log::error("cannot train", {{"reason", error.message}});
    for (const FieldError& field : error.fields) {
        log::error("configuration", {{"field", field.pointer}, {"message", field.message}});
    }
    if (client != nullptr) {
        client->exception("lockstep-train", error.message);
    }
    return kExitWrong;
}

int wrong_elsewhere(const Error& error, RankClient* client) {
    if (client != nullptr) {
        client->exception(kPeerFault, error.message);
    }
    return wrong(error);
}

int failed(const Error& error) {
    log::error("training failed", {{"reason", error.text()}});
    return kExitFailed;
}

int failed_by_peer(const Error& error, RankClient* client) {
    if (client != nullptr && error.code == Errc::timed_out) {
        client->exception(kPeerFault, error.message);
    }
    return failed(error);
}

}  // namespace lockstep
