// Names are looked up where nobody has to wait for a name server that is silent.
#include "job/async/name_lookup.hpp"

#include "job/async/task_group.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using Found = Result<std::vector<tcp::endpoint>>;

Task<void> look(NameLookup& lookup, std::string host, std::string port, std::optional<Found>& out) {
    out = co_await lookup.run(std::move(host), std::move(port));
}

class NameLookupTest : public testing::Test {
  protected:
    const Found& look_up(const std::string& host, const std::string& port = "4180") {
        tasks_.spawn("look", look(lookup_, host, port, found_));
        const auto deadline = std::chrono::steady_clock::now() + 60s;
        while (!found_ && std::chrono::steady_clock::now() < deadline) {
            io_.run_one_for(50ms);
            io_.restart();
        }
        return found_.value();
    }

    net::io_context io_{1};
    TaskGroup tasks_{io_};
    NameLookup lookup_{io_.get_executor()};
    std::optional<Found> found_;
};

TEST_F(NameLookupTest, AnAddressIsItself) {
    ASSERT_TRUE(look_up("127.0.0.9"));
    ASSERT_EQ((*found_)->size(), 1U);
    EXPECT_EQ((*found_)->front(), tcp::endpoint(net::ip::make_address("127.0.0.9"), 4180));
}

TEST_F(NameLookupTest, SoIsAnAddressOfIp6) {
    ASSERT_TRUE(look_up("::1"));
    EXPECT_EQ((*found_)->front(), tcp::endpoint(net::ip::make_address("::1"), 4180));
}

TEST_F(NameLookupTest, AHostHasItsAddresses) {
    ASSERT_TRUE(look_up("localhost"));
    EXPECT_TRUE(std::all_of((*found_)->begin(), (*found_)->end(), [](const tcp::endpoint& one) {
        return one.address().is_loopback() && one.port() == 4180;
    }));
}

TEST_F(NameLookupTest, APortThatIsNoneIsRefused) {
    EXPECT_FALSE(look_up("127.0.0.9", "http"));
}

TEST_F(NameLookupTest, NobodyWaitsForWhatWasCancelled) {
    tasks_.spawn("look", look(lookup_, "silent.invalid", "1", found_));
    io_.poll();
    lookup_.cancel();
    io_.restart();
    io_.poll();
    ASSERT_TRUE(found_);
    ASSERT_FALSE(*found_);
    EXPECT_EQ((*found_).error().code, Errc::unavailable);
}

// The thread's answer came for an io_context that was gone.
TEST(NameLookup, MayBeAskedWhenTheProgramEnds) {
    std::optional<Found> found;
    {
        net::io_context io{1};
        NameLookup lookup{io.get_executor()};
        net::co_spawn(io, look(lookup, "silent.invalid", "1", found), net::detached);
        io.poll();
    }
    EXPECT_TRUE(!found || !*found);  // where names are looked up fast, it has been told of already
}

}  // namespace
}  // namespace lockstep
