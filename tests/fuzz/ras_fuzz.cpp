// What NCCL's RAS answers, or whatever listens in its place; and who is named from it. Bytes stand
// for themselves, or are written over what NCCL says of four ranks, one look after the other.
#include "job/agent/nccl/desync_watch.hpp"
#include "tests/support/ras_words.hpp"

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

std::string four_ranks(std::uint64_t behind) {
    lockstep::test::RasGroup group;
    for (int rank = 0; rank < 4; ++rank) {
        lockstep::test::RasMember one;
        one.rank = rank;
        one.pid = 100 + rank;
        one.launched[4] = rank == 2 ? behind : 9;
        one.missing = rank == 3 && behind == 7;
        one.unresponsive = true;
        group.members.push_back(one);
    }
    return lockstep::test::ras_words({group, lockstep::test::RasGroup{7, 2, {}}});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view bytes{reinterpret_cast<const char*>(data), size};
    static_cast<void>(lockstep::parse_ras_status(bytes));
    lockstep::DesyncWatch watch{
        {4, 0, 2},
        [](std::int64_t pid) {
            return pid < 102 ? std::optional{static_cast<std::int32_t>(pid - 100)} : std::nullopt;
        },
        std::chrono::seconds{4}};
    lockstep::DesyncWatch::TimePoint now{};
    // Two bytes where, one what.
    for (std::size_t at = 0; at + 3 <= size; at += 3) {
        std::string text = four_ranks(7 + data[at] % 3);
        const std::size_t place = (data[at] + 256U * data[at + 1]) % text.size();
        text[place] = static_cast<char>(data[at + 2]);
        now += std::chrono::seconds{2};
        const auto status = lockstep::parse_ras_status(text);
        if (!status) {
            continue;
        }
        const auto seen = watch.take(*status, now);
        if (seen.waited_for && (seen.waited_for->rank < 0 || seen.waited_for->rank > 3)) {
            std::abort();
        }
        for (const auto& row : seen.rows) {
            if (row.rank < 0 || row.rank > 3 || row.lag < 0 || row.launched < 0) {
                std::abort();
            }
        }
    }
    return 0;
}
