// Every operation on every type over two to nine ranks; then what goes wrong.
#include "tests/unit/collective/gloo_ranks.hpp"

#include <gloo/types.h>

#include <bit>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <mutex>

namespace lockstep {
namespace {

using namespace std::chrono_literals;

// Values of any type, written and read as doubles.
class Values {
  public:
    Values(Dtype type, std::size_t count) : type_(type), bytes_(count * size_of(type)) {}

    void set(std::size_t i, double value) {
        switch (type_) {
            case Dtype::u8:
                return put(i, static_cast<std::uint8_t>(value));
            case Dtype::i32:
                return put(i, static_cast<std::int32_t>(value));
            case Dtype::i64:
                return put(i, static_cast<std::int64_t>(value));
            case Dtype::f16:
                return put(i, gloo::cpu_float2half_rn(static_cast<float>(value)).x);
            case Dtype::bf16:
                return put(i, static_cast<std::uint16_t>(
                                  std::bit_cast<std::uint32_t>(static_cast<float>(value)) >> 16U));
            case Dtype::f32:
                return put(i, static_cast<float>(value));
            case Dtype::f64:
                return put(i, value);
        }
    }
    double get(std::size_t i) const {
        switch (type_) {
            case Dtype::u8:
                return at<std::uint8_t>(i);
            case Dtype::i32:
                return at<std::int32_t>(i);
            case Dtype::i64:
                return static_cast<double>(at<std::int64_t>(i));
            case Dtype::f16: {
                gloo::float16 half;
                half.x = at<std::uint16_t>(i);
                return gloo::cpu_half2float(half);
            }
            case Dtype::bf16:
                return std::bit_cast<float>(static_cast<std::uint32_t>(at<std::uint16_t>(i))
                                            << 16U);
            case Dtype::f32:
                return at<float>(i);
            case Dtype::f64:
                return at<double>(i);
        }
        return 0;
    }
    std::size_t count() const { return bytes_.size() / size_of(type_); }
    Buffer buffer() { return {bytes_.data(), count(), type_, Device::cpu}; }
    const std::vector<std::byte>& bytes() const { return bytes_; }

  private:
    template <class T>
    void put(std::size_t i, T value) {
        std::memcpy(bytes_.data() + i * sizeof value, &value, sizeof value);
    }
    template <class T>
    T at(std::size_t i) const {
        T value;
        std::memcpy(&value, bytes_.data() + i * sizeof value, sizeof value);
        return value;
    }

    Dtype type_;
    std::vector<std::byte> bytes_;
};

// Small whole numbers: their sums and products are exact in every type, also in eight bits.
double value_of(std::int32_t rank, std::size_t i) {
    return static_cast<double>((static_cast<std::size_t>(rank) + i) % 3 + 1);
}
double reduced(ReduceOp op, std::int32_t ranks, std::size_t i) {
    double out = value_of(0, i);
    for (std::int32_t rank = 1; rank < ranks; ++rank) {
        const double value = value_of(rank, i);
        switch (op) {
            case ReduceOp::sum:
            case ReduceOp::average:
                out += value;
                break;
            case ReduceOp::product:
                out *= value;
                break;
            case ReduceOp::min:
                out = std::min(out, value);
                break;
            case ReduceOp::max:
                out = std::max(out, value);
                break;
        }
    }
    return op == ReduceOp::average ? out / ranks : out;
}
// An average of three need not be exact in half precision.
double tolerance(Dtype type, ReduceOp op) {
    return op != ReduceOp::average ? 0.0
           : type == Dtype::bf16   ? 0.01
           : type == Dtype::f16    ? 1e-3
                                   : 1e-6;
}

// The last one: an all-reduce by the ring where there are more than two ranks and large types.
constexpr std::size_t kCounts[] = {1, 3000, 17'001};
constexpr ReduceOp kOps[] = {ReduceOp::sum, ReduceOp::product, ReduceOp::min, ReduceOp::max,
                             ReduceOp::average};

constexpr Dtype kTypes[] = {Dtype::u8,   Dtype::i32, Dtype::i64, Dtype::f16,
                            Dtype::bf16, Dtype::f32, Dtype::f64};

class GlooOperations : public testing::TestWithParam<std::int32_t> {
  protected:
    // As every rank of a world, for one type after the other.
    void each_type(const std::function<void(Communicator&, Dtype)>& body,
                   bool shared_memory = false) {
        as_gloo_ranks(
            GetParam(),
            [&](Communicator& all) {
                for (const Dtype type : kTypes) {
                    SCOPED_TRACE(to_string(type));
                    body(all, type);
                }
            },
            100s, shared_memory);
    }
};

bool averages(Dtype type) {
    return type != Dtype::u8 && type != Dtype::i32 && type != Dtype::i64;
}
Values of_rank(Dtype type, std::int32_t rank, std::size_t count) {
    Values out{type, count};
    for (std::size_t i = 0; i < count; ++i) {
        out.set(i, value_of(rank, i));
    }
    return out;
}

TEST_P(GlooOperations, AllReduceAndReduce) {
    const auto sums = [](Communicator& all, Dtype type) {
        for (const std::size_t count : kCounts) {
            for (const ReduceOp op : kOps) {
                Values mine = of_rank(type, all.rank(), count);
                const Values before = mine;
                const Status done = all.all_reduce(mine.buffer(), op);
                if (op == ReduceOp::average && !averages(type)) {
                    ASSERT_FALSE(done.has_value());
                    EXPECT_EQ(done.error().code, Errc::invalid);
                    continue;
                }
                ASSERT_TRUE(done.has_value()) << done.error().text();
                const std::int32_t root = all.size() - 1;
                Values one = before;
                ASSERT_TRUE(all.reduce(one.buffer(), root, op).has_value());
                if (all.rank() != root) {
                    EXPECT_EQ(one.bytes(), before.bytes()) << "the others' values stay";
                }
                for (std::size_t i = 0; i < count; ++i) {
                    const double want = reduced(op, all.size(), i);
                    ASSERT_NEAR(mine.get(i), want, tolerance(type, op)) << to_string(op) << i;
                    if (all.rank() == root) {
                        ASSERT_NEAR(one.get(i), want, tolerance(type, op)) << to_string(op) << i;
                    }
                }
            }
        }
    };
    each_type(sums);
    each_type(sums, /*shared_memory=*/true);
}

TEST_P(GlooOperations, ReduceScatterGivesEachRankItsShare) {
    each_type([](Communicator& all, Dtype type) {
        for (const std::size_t count : kCounts) {
            for (const ReduceOp op : kOps) {
                Values whole =
                    of_rank(type, all.rank(), count * static_cast<std::size_t>(all.size()));
                const Values before = whole;
                Values mine{type, count};
                const Status done = all.reduce_scatter(whole.buffer(), mine.buffer(), op);
                ASSERT_EQ(done.has_value(), op != ReduceOp::average || averages(type));
                if (!done) {
                    continue;
                }
                EXPECT_EQ(whole.bytes(), before.bytes());
                for (std::size_t i = 0; i < count; ++i) {
                    const std::size_t at = static_cast<std::size_t>(all.rank()) * count + i;
                    ASSERT_NEAR(mine.get(i), reduced(op, all.size(), at), tolerance(type, op))
                        << to_string(op) << i;
                }
            }
        }
    });
}

TEST_P(GlooOperations, AllGatherBroadcastSendAndReceive) {
    each_type([](Communicator& all, Dtype type) {
        for (const std::size_t count : kCounts) {
            Values mine = of_rank(type, all.rank(), count);
            Values whole{type, count * static_cast<std::size_t>(all.size())};
            ASSERT_TRUE(all.all_gather(mine.buffer(), whole.buffer()).has_value());
            for (std::size_t at = 0; at < whole.count(); ++at) {
                ASSERT_EQ(whole.get(at),
                          value_of(static_cast<std::int32_t>(at / count), at % count));
            }
            Values roots = of_rank(type, all.rank(), count);
            const std::int32_t root = all.size() / 2;
            ASSERT_TRUE(all.broadcast(roots.buffer(), root).has_value());
            EXPECT_EQ(roots.bytes(), of_rank(type, root, count).bytes());
            // Two messages from the first to the last arrive in order.
            Values second = of_rank(type, 7, count);
            const std::int32_t last = all.size() - 1;
            if (all.rank() == 0) {
                ASSERT_TRUE(all.send(mine.buffer(), last).has_value());
                ASSERT_TRUE(all.send(second.buffer(), last).has_value());
            } else if (all.rank() == last) {
                Values one{type, count};
                Values two{type, count};
                ASSERT_TRUE(all.recv(one.buffer(), 0).has_value());
                ASSERT_TRUE(all.recv(two.buffer(), 0).has_value());
                EXPECT_EQ(one.bytes(), of_rank(type, 0, count).bytes());
                EXPECT_EQ(two.bytes(), second.bytes());
            }
        }
        ASSERT_TRUE(all.barrier().has_value());
    });
}

INSTANTIATE_TEST_SUITE_P(Sizes, GlooOperations, testing::Range(2, 10));

TEST(GlooAborts, ACallThatWaitsForAMissingPeerEndsWithTheReason) {
    std::mutex mutex;
    std::condition_variable changed;
    bool ended = false;
    as_gloo_ranks(2, [&](Communicator& all) {
        if (all.rank() == 1) {  // never calls, and stays until the other one has given up
            std::unique_lock lock{mutex};
            changed.wait(lock, [&] { return ended; });
            lock.unlock();
            std::vector<float> values(10, 1.0F);
            const Status late = all.all_reduce_sum(values);
            ASSERT_FALSE(late.has_value());
            EXPECT_EQ(late.error().code, Errc::unavailable) << late.error().text();
            return;
        }
        EXPECT_EQ(all.async_error(), std::nullopt);
        // Whether the call waits already or comes only now: it ends alike.
        std::thread aborter{[&all] { all.abort("rank 1 was lost"); }};
        std::vector<float> values(100'000, 1.0F);
        const Status done = all.all_reduce_sum(values);
        aborter.join();
        ASSERT_FALSE(done.has_value());
        EXPECT_EQ(done.error().code, Errc::cancelled);
        EXPECT_EQ(done.error().message, "rank 1 was lost");
        ASSERT_TRUE(all.async_error().has_value());
        EXPECT_EQ(all.async_error()->code, Errc::cancelled);
        const Status after = all.barrier();
        ASSERT_FALSE(after.has_value());
        EXPECT_EQ(after.error().code, Errc::cancelled);
        const std::lock_guard lock{mutex};
        ended = true;
        changed.notify_all();
    });
}

TEST(GlooAborts, ASilentPeerIsATimeout) {
    std::mutex mutex;
    std::condition_variable changed;
    bool ended = false;
    as_gloo_ranks(
        2,
        [&](Communicator& all) {
            if (all.rank() == 1) {
                std::unique_lock lock{mutex};
                changed.wait(lock, [&] { return ended; });
                return;
            }
            std::vector<float> values(10, 1.0F);
            const Status done = all.all_reduce_sum(values);
            EXPECT_FALSE(done.has_value());
            EXPECT_EQ(done.error().code, Errc::timed_out) << done.error().text();
            const std::lock_guard lock{mutex};
            ended = true;
            changed.notify_all();
        },
        3s);
}

TEST(GlooDiffers, ANumberOfValuesThatDiffersIsNamedOnEveryRank) {
    as_gloo_ranks(3, [](Communicator& all) {
        std::vector<float> values(all.rank() == 1 ? 5 : 4, 1.0F);
        const Status done = all.all_reduce_sum(values);
        ASSERT_FALSE(done.has_value());
        EXPECT_EQ(done.error().code, Errc::conflict);
        EXPECT_NE(done.error().message.find("of 5 f32"), std::string::npos) << done.error().text();
        EXPECT_NE(done.error().message.find("of 4 f32"), std::string::npos) << done.error().text();
        EXPECT_NE(done.error().message.find("rank 1"), std::string::npos) << done.error().text();
    });
}

TEST(GlooDiffers, AnOperationThatDiffersIsNamed) {
    as_gloo_ranks(2, [](Communicator& all) {
        std::vector<float> values(4, 1.0F);
        const Status done = all.rank() == 0 ? all.all_reduce_sum(values)
                                            : all.broadcast(buffer_of(std::span{values}), 0);
        ASSERT_FALSE(done.has_value());
        EXPECT_EQ(done.error().code, Errc::conflict);
        EXPECT_NE(done.error().message.find("all-reduce of 4 f32"), std::string::npos);
        EXPECT_NE(done.error().message.find("broadcast of 4 f32"), std::string::npos);
    });
}

// Gloo itself ends the process ("op.preamble.length <= op.nbytes") when sizes differ.
TEST(GlooDiffers, ASizeThatDiffersLaterIsATimeoutAndNotTheEndOfTheProcess) {
    as_gloo_ranks(
        2,
        [](Communicator& all) {
            std::vector<float> values(8, 1.0F);
            ASSERT_TRUE(all.all_reduce_sum(values).has_value());
            ASSERT_TRUE(all.all_reduce_sum(std::span{values}.first(4)).has_value());
            const Status done =
                all.all_reduce_sum(std::span{values}.first(all.rank() == 0 ? 8 : 4));
            ASSERT_FALSE(done.has_value());
            EXPECT_TRUE(done.error().code == Errc::timed_out ||
                        done.error().code == Errc::unavailable)
                << done.error().text();
        },
        3s);
}

TEST(GlooArguments, WhatIsWrongIsSaidBeforeAnythingIsSent) {
    as_gloo_ranks(2, [](Communicator& all) {
        std::vector<float> values(4, 1.0F);
        const auto refused = [](const Status& done, std::string_view why) {
            ASSERT_FALSE(done.has_value());
            EXPECT_EQ(done.error().code, Errc::invalid);
            EXPECT_NE(done.error().message.find(why), std::string::npos) << done.error().text();
        };
        const Buffer whole = buffer_of(std::span{values});
        refused(all.broadcast(whole, 2), "no rank 2 among 2");
        refused(all.broadcast(whole, -1), "no rank -1 among 2");
        refused(all.send(whole, all.rank()), "to itself");
        refused(all.recv(whole, all.rank()), "from itself");
        refused(all.all_gather(whole, whole), "4 f32 of each of 2 ranks are not 4 f32");
        refused(all.reduce_scatter(whole, whole), "are not 4 f32");
        refused(all.all_reduce({nullptr, 3, Dtype::f32, Device::cpu}), "no memory for 3 values");
        refused(all.all_reduce({values.data(), 4, Dtype::f32, Device::cuda}), "joined by Gloo");
        EXPECT_EQ(all.async_error(), std::nullopt);
        ASSERT_TRUE(all.all_reduce_sum(values).has_value()) << "it is as before";
        EXPECT_EQ(values[0], 2.0F);
        EXPECT_TRUE(all.all_reduce({nullptr, 0, Dtype::f32, Device::cpu}).has_value());
    });
}

}  // namespace
}  // namespace lockstep
