// size: what can go wrong with NCCL, with one fixture of ranks as threads
// Lockstep's side of NCCL, with the double of tests/support/nccl_double in the place of NCCL and of
// the CUDA driver: nothing here says anything about NCCL itself. Ranks are threads; those that are
// processes, and real GPUs, are in tests/integration/test_nccl.py.
#include "job/collective/nccl.hpp"

#include "job/collective/memory_key_store.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <latch>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

// Every rank gets what the one made that was asked.
class Ids {
  public:
    ExchangeNcclIds of(std::int32_t rank, std::int32_t size, std::int32_t ids = 1) {
        return [this, rank, size, ids](const std::function<Result<NcclUniqueId>()>& make)
                   -> Result<std::vector<NcclUniqueId>> {
            std::vector<NcclUniqueId> out(static_cast<std::size_t>(ids));
            for (std::int32_t id = 0; id < ids; ++id) {
                const std::string key = "id/" + std::to_string(id);
                if (rank == id * (size / ids)) {
                    const auto made = make();
                    if (!made) {
                        return fail(made.error());
                    }
                    static_cast<void>(keys_.set(
                        key, {reinterpret_cast<const char*>(made->data()), made->size()}));
                }
                const auto value = keys_.wait(key, 60s);
                if (!value) {
                    return fail(value.error());
                }
                std::memcpy(out[static_cast<std::size_t>(id)].data(), value->data(), value->size());
            }
            return out;
        };
    }

  private:
    MemoryKeyStore keys_;
};

NcclOptions options_of(std::int32_t rank, std::int32_t size) {
    NcclOptions out;
    out.rank = rank;
    out.size = size;
    out.gpu = rank % 8;
    out.nccl_library = NCCL_DOUBLE;
    out.cuda_driver = NCCL_DOUBLE;
    out.verdict_timeout = 30s;
    return out;
}

// A stream that no other test and rank has.
Stream new_stream() {
    static std::atomic<std::uintptr_t> next{1};
    return reinterpret_cast<Stream>(next++);
}

class NcclWithDouble : public testing::Test {
  protected:
    void TearDown() override { ::unsetenv("LOCKSTEP_NCCL_DOUBLE"); }
    static void wrong(const char* words) { ::setenv("LOCKSTEP_NCCL_DOUBLE", words, 1); }

    using Change = std::function<void(NcclOptions&)>;
    using Body = std::function<void(NcclCommunicator&, Stream)>;
    // As the ranks 0 … `there` - 1 of `size`; what making the communicator failed with, by rank.
    std::vector<std::optional<Error>> as_ranks(
        std::int32_t size, const Body& body, std::int32_t there = -1,
        const Change& change = [](NcclOptions&) {}, std::int32_t ids = 1) {
        std::vector<std::optional<Error>> errors(static_cast<std::size_t>(size));
        std::vector<std::thread> threads;
        for (std::int32_t rank = 0; rank < (there < 0 ? size : there); ++rank) {
            threads.emplace_back([&, rank] {
                NcclOptions options = options_of(rank, size);
                change(options);
                auto made = make_nccl(options, keys_, ids_.of(rank, size, ids));
                if (!made) {
                    errors[static_cast<std::size_t>(rank)] = made.error();
                    return;
                }
                body(**made, new_stream());
            });
        }
        for (std::thread& thread : threads) {
            thread.join();
        }
        return errors;
    }

    MemoryKeyStore keys_;
    Ids ids_;
};

Buffer on_gpu(std::vector<float>& values) {
    return {values.data(), values.size(), Dtype::f32, Device::cuda};
}

TEST_F(NcclWithDouble, EveryOperationReachesTheRightFunctionWithTheRightArguments) {
    const auto errors = as_ranks(3, [](NcclCommunicator& all, Stream stream) {
        const auto r = static_cast<float>(all.rank());
        std::vector<float> sum{r, 10.0F};
        std::vector<float> most{r, -r};
        std::vector<float> mean{3.0F * r};
        std::vector<float> root{r + 1};
        std::vector<float> product{r + 1};
        std::vector<float> mine{r};
        std::vector<float> every(3);
        std::vector<float> shares{r, 2 * r, 3 * r};
        std::vector<float> share(1);
        std::vector<float> least{r - 1};
        ASSERT_TRUE(all.all_reduce(on_gpu(sum), ReduceOp::sum, stream).has_value());
        ASSERT_TRUE(all.all_reduce(on_gpu(most), ReduceOp::max, stream).has_value());
        ASSERT_TRUE(all.all_reduce(on_gpu(least), ReduceOp::min, stream).has_value());
        ASSERT_TRUE(all.all_reduce(on_gpu(mean), ReduceOp::average, stream).has_value());
        ASSERT_TRUE(all.broadcast(on_gpu(root), 2, stream).has_value());
        ASSERT_TRUE(all.reduce(on_gpu(product), 1, ReduceOp::product, stream).has_value());
        ASSERT_TRUE(all.all_gather(on_gpu(mine), on_gpu(every), stream).has_value());
        ASSERT_TRUE(
            all.reduce_scatter(on_gpu(shares), on_gpu(share), ReduceOp::sum, stream).has_value());
        std::vector<float> passed{r};
        if (all.rank() == 0) {
            ASSERT_TRUE(all.send(on_gpu(passed), 2, stream).has_value());
        } else if (all.rank() == 2) {
            ASSERT_TRUE(all.recv(on_gpu(passed), 0, stream).has_value());
        }
        const Status done = all.barrier(stream);
        ASSERT_TRUE(done.has_value()) << done.error().text();
        EXPECT_EQ(sum, (std::vector<float>{3, 30}));
        EXPECT_EQ(most, (std::vector<float>{2, 0}));
        EXPECT_EQ(least, (std::vector<float>{-1}));
        EXPECT_EQ(mean, (std::vector<float>{3}));
        EXPECT_EQ(root, (std::vector<float>{3}));
        EXPECT_EQ(product[0], all.rank() == 1 ? 6.0F : r + 1);
        EXPECT_EQ(every, (std::vector<float>{0, 1, 2}));
        EXPECT_EQ(share[0], 3 * (r + 1));
        EXPECT_EQ(passed[0], all.rank() == 1 ? 1.0F : 0.0F);
        EXPECT_EQ(all.async_error(), std::nullopt);
        const Status host = all.all_reduce_sum(sum);
        ASSERT_FALSE(host.has_value());
        EXPECT_THAT(host.error().message, HasSubstr("the memory of the host"));
    });
    EXPECT_FALSE(errors[0] || errors[1] || errors[2]);
}

TEST_F(NcclWithDouble, EveryTypeHasNcclsNumber) {
    as_ranks(2, [](NcclCommunicator& all, Stream stream) {
        for (const Dtype type :
             {Dtype::u8, Dtype::i32, Dtype::i64, Dtype::f16, Dtype::bf16, Dtype::f32, Dtype::f64}) {
            // The maximum of two equal values is the value, whatever its type.
            std::vector<unsigned char> bytes(4 * size_of(type), 0x3c);
            const auto before = bytes;
            ASSERT_TRUE(all.all_reduce({bytes.data(), 4, type, Device::cuda}, ReduceOp::max, stream)
                            .has_value());
            ASSERT_TRUE(all.barrier(stream).has_value());
            EXPECT_EQ(bytes, before) << to_string(type);
        }
    });
}

// Each cost its caller a sleep of 0.1 ms, since NCCL says of all of them that they are in progress.
TEST_F(NcclWithDouble, AnOperationThatNcclTakesAtOnceLetsNobodySleep) {
    as_ranks(2, [](NcclCommunicator& all, Stream stream) {
        constexpr long kOperations = 400;
        const auto slept = [] {
            rusage used{};
            ::getrusage(RUSAGE_THREAD, &used);
            return used.ru_nvcsw;  // also for a mutex that the double's thread has
        };
        std::vector<float> values(1);
        const long before = slept();
        for (long i = 0; i < kOperations; ++i) {
            ASSERT_TRUE(all.all_reduce(on_gpu(values), ReduceOp::sum, stream).has_value());
        }
        EXPECT_LT(slept() - before, kOperations * 3 / 4);
        ASSERT_TRUE(all.barrier(stream).has_value());
    });
}

TEST_F(NcclWithDouble, SeveralIdsGoToTheScalableInitialisation) {
    const auto errors = as_ranks(
        4, [](NcclCommunicator& all, Stream stream) { EXPECT_TRUE(all.barrier(stream)); }, -1,
        [](NcclOptions&) {}, 2);
    EXPECT_EQ(errors[0], std::nullopt) << errors[0]->text();
}

TEST_F(NcclWithDouble, MoreRanksThanOneRootTakesMeetAtTwo) {
    constexpr std::int32_t kRanks = 131;  // the first root has 66 of them
    std::atomic<int> good{0};
    const auto errors = as_ranks(
        kRanks,
        [&](NcclCommunicator& all, Stream stream) {
            std::vector<float> sum{1.0F};
            good += all.all_reduce(on_gpu(sum), ReduceOp::sum, stream) && all.barrier(stream) &&
                            sum[0] == static_cast<float>(kRanks)
                        ? 1
                        : 0;
        },
        -1, [](NcclOptions& options) { options.init_timeout = 60s; }, 2);
    EXPECT_EQ(errors[0], std::nullopt) << errors[0]->text();
    EXPECT_EQ(good, kRanks);
}

// The double looked at the first id only.
TEST_F(NcclWithDouble, ASecondIdThatLeadsNowhereIsNoticed) {
    const auto nowhere = [](std::int32_t rank, Ids& ids) -> ExchangeNcclIds {
        return [ask = ids.of(rank, 4, 2)](const auto& make) {
            auto all = ask(make);
            all->at(1) = all->at(0);
            return all;
        };
    };
    std::vector<std::optional<Error>> errors(4);
    std::vector<std::thread> threads;
    for (std::int32_t rank = 0; rank < 4; ++rank) {
        threads.emplace_back([&, rank] {
            NcclOptions options = options_of(rank, 4);
            options.init_timeout = 5s;
            options.verdict_timeout = 2s;
            const auto made = make_nccl(options, keys_, nowhere(rank, ids_));
            if (!made) {
                errors[static_cast<std::size_t>(rank)] = made.error();
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    for (const auto& error : errors) {
        ASSERT_TRUE(error.has_value());
        EXPECT_THAT(error->message, HasSubstr("NCCL's initialisation"));
    }
}

TEST_F(NcclWithDouble, ARankThatDoesNotComeIsNamed) {
    std::mutex mutex;
    std::vector<NcclVerdict> verdicts;
    const auto errors = as_ranks(
        3, [](NcclCommunicator&, Stream) { FAIL(); }, 2,
        [&](NcclOptions& options) {
            options.init_timeout = 20s;
            options.on_verdict = [&](const NcclVerdict& one) {
                const std::lock_guard lock{mutex};
                verdicts.push_back(one);
            };
        });
    ASSERT_EQ(verdicts.size(), 2U) << "each tells whoever asked";
    for (const NcclVerdict& one : verdicts) {
        EXPECT_EQ(one.culprits, std::vector<std::int32_t>{2});
        EXPECT_EQ(one.text, "NCCL's initialisation: missing: rank 2");
    }
    for (const std::size_t rank : {0U, 1U}) {
        ASSERT_TRUE(errors[rank].has_value());
        EXPECT_EQ(errors[rank]->code, Errc::timed_out);
        EXPECT_THAT(errors[rank]->message, HasSubstr("missing: rank 2"));
    }
}

TEST_F(NcclWithDouble, AnInitialisationThatDoesNotEndIsGivenUp) {
    wrong("no-init:1");
    const auto errors = as_ranks(
        2, [](NcclCommunicator&, Stream) { FAIL(); }, -1,
        [](NcclOptions& options) { options.init_timeout = 20s; });
    ASSERT_TRUE(errors[0].has_value());
    EXPECT_THAT(errors[0]->message, HasSubstr("every rank is there and waits"));
}

TEST_F(NcclWithDouble, OtherIdsThanTheFirstRanksAreSaidByEveryRank) {
    Ids others;
    std::vector<std::optional<Error>> errors(2);
    std::vector<std::thread> threads;
    for (std::int32_t rank = 0; rank < 2; ++rank) {
        threads.emplace_back([&, rank] {
            // Rank 1 is alone with its ids.
            auto made =
                make_nccl(options_of(rank, 2), keys_, rank == 0 ? ids_.of(0, 2) : others.of(0, 2));
            ASSERT_FALSE(made.has_value());
            errors[static_cast<std::size_t>(rank)] = made.error();
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    EXPECT_EQ(errors[1]->code, Errc::conflict);
    EXPECT_THAT(errors[1]->message, HasSubstr("rank 1 has other NCCL ids than rank 0"));
    EXPECT_THAT(errors[0]->message, HasSubstr("rank 1: has other NCCL ids than rank 0"));
}

TEST_F(NcclWithDouble, AnotherVersionThanTheFirstRanksIsSaid) {
    ASSERT_TRUE(keys_.set("nccl/rank/0", "2.27.3 0123").has_value());
    const auto made = make_nccl(options_of(1, 2), keys_, Ids{}.of(0, 1));
    ASSERT_FALSE(made.has_value());
    EXPECT_EQ(made.error().code, Errc::conflict);
    EXPECT_THAT(made.error().message, HasSubstr("rank 1 has NCCL 2.32.3, rank 0 2.27.3"));
}

TEST_F(NcclWithDouble, AnErrorOfARanksOwnIsTheCauseOnEveryRank) {
    wrong("error:1:2:1");  // rank 1's second operation: unhandled cuda error
    as_ranks(3, [](NcclCommunicator& all, Stream stream) {
        std::vector<float> values(4, 1.0F);
        ASSERT_TRUE(all.barrier(stream).has_value());
        ASSERT_TRUE(all.all_reduce(on_gpu(values), ReduceOp::sum, stream).has_value());
        const Status done = all.barrier(stream);
        ASSERT_FALSE(done.has_value());
        EXPECT_THAT(done.error().message, HasSubstr("rank 1: unhandled cuda error"));
        const Status after = all.all_reduce(on_gpu(values), ReduceOp::sum, stream);
        ASSERT_FALSE(after.has_value());
        EXPECT_EQ(after.error().message, all.async_error()->message);
    });
}

// What two ranks had sent each other made those that had no part in it "behind".
TEST_F(NcclWithDouble, ARankThatSkipsACollectiveIsNamedWhateverTwoOthersHaveSentEachOther) {
    std::mutex mutex;
    std::condition_variable changed;
    int ended = 0;
    as_ranks(
        3,
        [&](NcclCommunicator& all, Stream stream) {
            std::vector<float> values(4, 1.0F);
            if (all.rank() == 0) {
                ASSERT_TRUE(all.send(on_gpu(values), 2, stream).has_value());
            } else if (all.rank() == 2) {
                ASSERT_TRUE(all.recv(on_gpu(values), 0, stream).has_value());
            }
            ASSERT_TRUE(all.barrier(stream).has_value());
            if (all.rank() != 1) {
                ASSERT_TRUE(all.all_reduce(on_gpu(values), ReduceOp::sum, stream).has_value());
                const Status done = all.barrier(stream);
                ASSERT_FALSE(done.has_value());
                EXPECT_EQ(done.error().code, Errc::timed_out);
                EXPECT_THAT(done.error().message, HasSubstr("rank 1 is behind"));
            }
            // Rank 1 is well, and elsewhere: it learns of it all the same.
            std::unique_lock lock{mutex};
            ++ended;
            changed.notify_all();
            changed.wait(lock, [&] { return ended == 3; });
            lock.unlock();
            if (all.rank() == 1) {
                while (!all.async_error()) {
                    std::this_thread::sleep_for(10ms);
                }
                EXPECT_THAT(all.async_error()->message, HasSubstr("rank 1 is behind"));
            }
        },
        -1, [](NcclOptions& options) { options.silence = 15s; });
}

// NCCL makes connections when an operation is called, and waits for who does not call it: nobody
// raised the alarm there, so a rank that was alive and elsewhere was waited for without end.
TEST_F(NcclWithDouble, ARankThatIsNotThereForConnectionsIsNamed) {
    wrong("connects:0:2 connects:1:2");
    as_ranks(
        3,
        [](NcclCommunicator& all, Stream stream) {
            ASSERT_TRUE(all.barrier(stream).has_value());
            if (all.rank() != 2) {
                std::vector<float> values(4, 1.0F);
                const Status begun = all.all_reduce(on_gpu(values), ReduceOp::sum, stream);
                ASSERT_FALSE(begun.has_value());
                EXPECT_EQ(begun.error().code, Errc::timed_out);
                EXPECT_THAT(begun.error().message, HasSubstr("rank 2 is behind"));
                EXPECT_THAT(begun.error().message, HasSubstr("has not begun after"));
            }
            while (!all.async_error()) {
                std::this_thread::sleep_for(10ms);
            }
            EXPECT_THAT(all.async_error()->message, HasSubstr("rank 2 is behind"));
        },
        -1, [](NcclOptions& options) { options.silence = 15s; });
}

TEST_F(NcclWithDouble, ARankThatCallsSomethingElseIsNamed) {
    as_ranks(
        3,
        [](NcclCommunicator& all, Stream stream) {
            std::vector<float> values(4, 1.0F);
            if (all.rank() == 2) {
                ASSERT_TRUE(all.broadcast(on_gpu(values), 0, stream).has_value());
            } else {
                ASSERT_TRUE(all.all_reduce(on_gpu(values), ReduceOp::sum, stream).has_value());
            }
            while (!all.async_error()) {
                std::this_thread::sleep_for(10ms);
            }
            EXPECT_THAT(all.async_error()->message, HasSubstr("rank 2 called broadcast of 4 f32"));
        },
        -1, [](NcclOptions& options) { options.silence = 15s; });
}

TEST_F(NcclWithDouble, AnOperationThatNeverEndsOnAnyRankBlamesNobody) {
    wrong("stuck:0:1");
    as_ranks(
        2,
        [](NcclCommunicator& all, Stream stream) {
            const Status done = all.barrier(stream);
            ASSERT_FALSE(done.has_value());
            EXPECT_EQ(done.error().code, Errc::timed_out);
            EXPECT_THAT(done.error().message, HasSubstr("every rank waits in operation 1"));
        },
        -1, [](NcclOptions& options) { options.silence = 15s; });
}

TEST_F(NcclWithDouble, AbortEndsABarrierThatWaits) {
    std::mutex mutex;
    std::condition_variable changed;
    bool ended = false;
    as_ranks(2, [&](NcclCommunicator& all, Stream stream) {
        if (all.rank() == 1) {
            std::unique_lock lock{mutex};
            changed.wait(lock, [&] { return ended; });
            return;
        }
        std::thread aborter{[&all] { all.abort("the generation is over"); }};
        const Status done = all.barrier(stream);
        aborter.join();
        ASSERT_FALSE(done.has_value());
        EXPECT_EQ(done.error().code, Errc::cancelled);
        EXPECT_EQ(done.error().message, "the generation is over");
        const std::lock_guard lock{mutex};
        ended = true;
        changed.notify_all();
    });
}

TEST_F(NcclWithDouble, ThoseThatAreLeftGoOnWithoutTheOneThatIsGone) {
    wrong("stuck:1:2");
    // Its GPU does no more, but it is there: NCCL shrinks none that saw a connection end.
    std::latch shrunk{2};
    as_ranks(
        3,
        [&shrunk](NcclCommunicator& all, Stream stream) {
            const auto arrive = [&all](std::latch* at) {
                all.rank() == 1 ? at->wait() : at->count_down();
            };
            const std::unique_ptr<std::latch, decltype(arrive)> at_the_end{&shrunk, arrive};
            ASSERT_TRUE(all.barrier(stream).has_value());
            std::vector<float> values{static_cast<float>(all.rank() + 1)};
            ASSERT_TRUE(all.all_reduce(on_gpu(values), ReduceOp::sum, stream).has_value());
            ASSERT_FALSE(all.barrier(stream).has_value());
            if (all.rank() == 1) {
                return;
            }
            const std::int32_t me[] = {all.rank()};
            EXPECT_FALSE(all.shrink(me).has_value());
            const std::int32_t gone[] = {1};
            const auto left = all.shrink(gone);
            ASSERT_TRUE(left.has_value()) << left.error().text();
            EXPECT_EQ((*left)->size(), 2);
            EXPECT_EQ((*left)->rank(), all.rank() == 0 ? 0 : 1);
            values[0] = static_cast<float>(all.rank() + 1);
            const Stream fresh = new_stream();
            ASSERT_TRUE((*left)->all_reduce(on_gpu(values), ReduceOp::sum, fresh).has_value());
            ASSERT_TRUE((*left)->barrier(fresh).has_value());
            EXPECT_EQ(values[0], 4.0F);
        },
        -1,
        [](NcclOptions& options) {
            options.elastic = true;
            options.silence = 15s;
        });
}

TEST_F(NcclWithDouble, ARankThatLeavesIsNamedAndNcclShrinksNoneThatHasAnError) {
    as_ranks(
        3,
        [](NcclCommunicator& all, Stream stream) {
            ASSERT_TRUE(all.barrier(stream).has_value());
            if (all.rank() == 1) {
                return;
            }
            const Status broken = all.barrier(stream);
            ASSERT_FALSE(broken.has_value());
            EXPECT_THAT(broken.error().message, HasSubstr("rank 1 does not answer"));
            const std::int32_t gone[] = {1};
            const auto left = all.shrink(gone);
            ASSERT_FALSE(left.has_value());
            EXPECT_EQ(left.error().code, Errc::unavailable);
        },
        -1,
        [](NcclOptions& options) {
            options.elastic = true;
            options.verdict_timeout = 20s;
        });
}

}  // namespace
}  // namespace lockstep
