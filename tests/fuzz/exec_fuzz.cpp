// What lockstepd, or whoever has got hold of its connection, says to lockstep-exec; what a user has
// signed; a configuration. An order that is taken has texts that end, and is taken again.
#include "scheduler-integration/exec/config.hpp"
#include "scheduler-integration/exec/order.hpp"
#include "scheduler-integration/exec/signature.hpp"
#include "scheduler-integration/exec/user_side.hpp"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace lockstep::exec;
    if (size == 0) {
        return 0;
    }
    const std::string text{reinterpret_cast<const char*>(data) + 1, size - 1};
    static const auto order = std::make_unique<Order>();
    switch (data[0] % 4) {
        case 0:
            if (read_order(data + 1, size - 1, *order) == nullptr &&
                check_order(*order) == nullptr && std::strlen(order->statement) > 0 &&
                order->statement[std::strlen(order->statement) - 1] != '\n') {
                std::abort();
            }
            break;
        case 1: {
            // Nobody fills an order of that size but the reader: here it is filled with anything.
            std::memset(order.get(), data[size - 1], sizeof *order);
            std::memcpy(order.get(), data + 1, std::min(size - 1, sizeof *order));
            static_cast<void>(check_order(*order));
            break;
        }
        case 2: {
            Signed out;
            const std::string whole = text.c_str();
            if (read_statement(whole, data[size - 1] % 4, out) && out.document.size() != 64) {
                std::abort();
            }
            std::string hash;
            static_cast<void>(check_payload("test", text.data(), text.size(), whole.c_str(), hash));
            break;
        }
        default: {
            Config config;
            if (read_config(text, config).empty() &&
                (config.callers.empty() || config.minimum_uid == 0)) {
                std::abort();
            }
        }
    }
    return 0;
}
