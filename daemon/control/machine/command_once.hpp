// A command under an Idempotency-Key is done once (job/model/command_keys.hpp). Control thread
// only.
#pragma once

#include "daemon/control/machine/draft.hpp"
#include "job/base/result.hpp"
#include "job/model/command_keys.hpp"

#include <string>

namespace lockstep {

// `before`: what was done under it.
inline Error key_reused(Command before) {
    return Error{Errc::conflict, "reused: this Idempotency-Key belongs to a " +
                                     std::string{to_string(before)} + " of this job"};
}

// What may join a command that is on its way.
inline Error too_many_keys() {
    return Error{Errc::conflict, "it is on its way already, for " +
                                     std::to_string(limits::kCommandKeysJoining) +
                                     " other Idempotency-Keys; nothing was done for this one"};
}

// True: its key is known, or will be with the draft, so the answer follows from that.
template <class Input>
bool answer_known(Draft& draft, const Input& input, Command command) {
    const Command* before = draft.job().command_keys.find(input.by, input.key);
    if (before == nullptr) {
        return false;
    }
    if (*before == command) {
        if (input.repeated) {
            *input.repeated = true;
        }
        draft.answers.push_back(input.done);
    } else {
        draft.answers.push_back([done = input.done, other = *before](const Status& stored) {
            done(stored ? Status{fail(key_reused(other))} : stored);
        });
    }
    return true;
}

}  // namespace lockstep
