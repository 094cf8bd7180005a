// What is understood of a message can be said again, and then means the same.
#include "job/model/wire/wire.hpp"

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

template <class Message, class Decode>
void check(std::string_view text, Decode decode) {
    const auto message = decode(text);
    if (!message) {
        return;
    }
    const std::string said = lockstep::wire::encode(Message{*message});
    const auto again = decode(said);
    if (!again || lockstep::wire::encode(Message{*again}) != said) {
        std::abort();
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text{reinterpret_cast<const char*>(data), size};
    check<lockstep::wire::AgentMessage>(text, lockstep::wire::decode_agent);
    check<lockstep::wire::DaemonMessage>(text, lockstep::wire::decode_daemon);
    return 0;
}
