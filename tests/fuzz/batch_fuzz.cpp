// Telemetry of ranks and GPUs, and what a rank says on its agent's socket. A batch that is
// understood can be said again, byte for byte the same from then on.
#include "job/agent/ranks/rank_message.hpp"
#include "job/model/wire/batch.hpp"
#include "job/model/wire/gpu_batch.hpp"

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) {
        return 0;
    }
    const std::string_view bytes{reinterpret_cast<const char*>(data) + 1, size - 1};
    switch (data[0] % 3) {
        case 0:
            if (const auto batch = lockstep::decode_batch(bytes)) {
                const std::string said = lockstep::encode_batch(*batch);
                const auto again = lockstep::decode_batch(said);
                if (!again || lockstep::encode_batch(*again) != said) {
                    std::abort();
                }
            }
            break;
        case 1:
            if (const auto batch = lockstep::decode_gpu_batch(bytes)) {
                const std::string said = lockstep::encode_gpu_batch(*batch);
                const auto again = lockstep::decode_gpu_batch(said);
                if (!again || lockstep::encode_gpu_batch(*again) != said) {
                    std::abort();
                }
            }
            break;
        default:
            static_cast<void>(lockstep::parse_rank_message(bytes, 1.0));
    }
    return 0;
}
