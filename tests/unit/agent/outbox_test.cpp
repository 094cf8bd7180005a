#include "job/agent/node/outbox.hpp"

#include "job/model/wire/gpu_batch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Batch batch_of(std::uint64_t seq, int rows = 1) {
    Batch batch;
    batch.seq = seq;
    for (int i = 0; i < rows; ++i) {
        batch.add_row(0, i, 0);
        batch.set("loss", 1);
    }
    return batch;
}

// What goes out now: "exited 1", "batch 2", …
std::vector<std::string> sent(Outbox& outbox) {
    std::vector<std::string> out;
    while (const auto frame = outbox.next()) {
        if (frame->binary) {
            if (is_gpu_batch(frame->bytes)) {
                out.push_back("gpus " + std::to_string(decode_gpu_batch(frame->bytes)->time));
                continue;
            }
            out.push_back("batch " + std::to_string(decode_batch(frame->bytes)->seq));
            continue;
        }
        const auto json = parse_json(frame->bytes);
        out.push_back(json->at("type").get<std::string>());
        if (json->contains("event")) {
            out.back() += " " + std::to_string(json->at("event").get<int>());
        }
    }
    return out;
}

TEST(Outbox, EventsOvertakeBatchesButWhatEndsARankWaitsForThem) {
    Outbox outbox;
    outbox.batch(batch_of(1));
    outbox.event(wire::Fault{});
    outbox.batch(batch_of(2));
    outbox.event(wire::Exited{});
    outbox.event(wire::Done{});
    outbox.control(wire::Beat{});
    outbox.control_last(wire::Join{});
    EXPECT_THAT(sent(outbox),
                ElementsAre("beat", "fault 1", "batch 1", "batch 2", "exited 2", "done 3", "join"));
}

TEST(Outbox, OnlyTheNewestLookAtTheGpusIsSentOnceAndHoldsNothingUp) {
    Outbox outbox;
    GpuBatch look;
    for (const double time : {1.0, 2.0}) {
        look.time = time;
        outbox.gpus(encode_gpu_batch(look));
    }
    outbox.batch(batch_of(1));
    EXPECT_THAT(sent(outbox), ElementsAre("batch 1", "gpus 2.000000"));
    outbox.gpus(encode_gpu_batch(look));
    outbox.disconnected();
    outbox.reconnected(1);
    EXPECT_TRUE(outbox.settled());
    EXPECT_THAT(sent(outbox), IsEmpty()) << "it is old by now";
}

TEST(Outbox, ABatchMadeAfterDoneDoesNotHoldItBack) {
    Outbox outbox;
    outbox.event(wire::Done{});
    outbox.batch(batch_of(1));
    EXPECT_THAT(sent(outbox), ElementsAre("done 1", "batch 1"));
}

TEST(Outbox, KeepsWhatIsNotAcknowledgedAndSendsItAgainInOrder) {
    Outbox outbox;
    outbox.event(wire::Exited{});
    outbox.event(wire::Exited{});
    outbox.batch(batch_of(1));
    outbox.batch(batch_of(2));
    outbox.control(wire::Beat{});
    EXPECT_EQ(sent(outbox).size(), 5U);
    outbox.acknowledge(1, 1);
    outbox.control(wire::Beat{});
    outbox.disconnected();
    outbox.reconnected(1);
    EXPECT_THAT(sent(outbox), ElementsAre("exited 2", "batch 2")) << "a beat is not repeated";
    EXPECT_FALSE(outbox.settled());
    outbox.acknowledge(2, 2);
    EXPECT_TRUE(outbox.settled());
    EXPECT_EQ(outbox.batch_bytes(), 0U);
    outbox.reconnected(2);
    EXPECT_THAT(sent(outbox), IsEmpty());
}

TEST(Outbox, ADaemonThatForgotGetsEverythingThatIsStillThere) {
    Outbox outbox;
    outbox.event(wire::Exited{});
    outbox.batch(batch_of(1));
    sent(outbox);
    outbox.reconnected(0);
    EXPECT_THAT(sent(outbox), ElementsAre("exited 1", "batch 1"));
}

TEST(Outbox, OverTheBoundTheOldestBatchesGoAndTheirRowsAreCounted) {
    const std::size_t one = encode_batch(batch_of(1, 10)).size();
    Outbox outbox{one * 3};
    for (std::uint64_t seq = 1; seq <= 5; ++seq) {
        outbox.batch(batch_of(seq, 10));
    }
    EXPECT_EQ(outbox.dropped_rows(), 20U);
    EXPECT_LE(outbox.batch_bytes(), one * 3);
    outbox.event(wire::Done{});
    EXPECT_THAT(sent(outbox), ElementsAre("batch 3", "batch 4", "batch 5", "done 1"));
}

TEST(Outbox, ABatchThatWasDroppedWhileDoneWaitedDoesNotBlockIt) {
    const std::size_t one = encode_batch(batch_of(1, 10)).size();
    Outbox outbox{one};
    outbox.batch(batch_of(1, 10));
    outbox.event(wire::Done{});
    outbox.batch(batch_of(2, 10));
    EXPECT_THAT(sent(outbox), ElementsAre("done 1", "batch 2"));
}

}  // namespace
}  // namespace lockstep
