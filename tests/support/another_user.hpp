// A stretch of a test in which this process makes its sockets as another Unix user than `job`.
// Root, who is admitted everywhere, becomes somebody else for it; anybody else is another one than
// the next.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

namespace lockstep::test {

class AnotherUser {
  public:
    AnotherUser() {
        constexpr uid_t kSomebody = 4712;
        EXPECT_TRUE(!root_ || ::seteuid(kSomebody) == 0);
    }
    AnotherUser(const AnotherUser&) = delete;
    AnotherUser& operator=(const AnotherUser&) = delete;
    ~AnotherUser() { EXPECT_TRUE(!root_ || ::seteuid(0) == 0); }

  private:
    const bool root_ = ::geteuid() == 0;

  public:
    const uid_t job = root_ ? 0 : ::geteuid() + 1;
};

}  // namespace lockstep::test
