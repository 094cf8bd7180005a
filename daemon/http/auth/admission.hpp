// Who may hold a connection, and whom one more replaces. A connection is a *stranger's* until it
// has shown a credential: strangers are counted by address, and when there are too many, the one of
// them that has waited longest gives way, so that those who only hold connections keep nobody else
// out. Nor do those of one address who have a credential, nor one user, wherever the connections
// come from (a proxy on this machine, this machine itself): each has so many and no more. Each
// listener has a budget of its own. No I/O, no clock; control thread.
#pragma once

#include "job/async/asio.hpp"

#include <chrono>
#include <cstddef>
#include <functional>
#include <list>
#include <map>
#include <string>

namespace lockstep {

// What a remote address counts as: an IPv6 host has a whole /64 (RFC 7421), an IPv4 address that is
// mapped into IPv6 is itself.
net::ip::address admission_key(const net::ip::address& remote);

class ConnectionAdmission {
  public:
    using Instant = std::chrono::steady_clock::time_point;

    struct Caps {
        std::size_t connections = 0;  // in all
        // Strangers of one address before the oldest gives way.
        std::size_t strangers = 0;
        // A stranger that has been here for less is never sent away: a burst is no attack.
        std::chrono::milliseconds patience{0};
        // Connections of one address beyond loopback, with a credential or not; 0 = any number.
        std::size_t address = 0;
        // Of `connections`, that only this machine's own may take: an operator gets in, whatever
        // comes from elsewhere.
        std::size_t reserved = 0;
        // Connections that have shown one user's credential; 0 = any number.
        std::size_t user = 0;
    };

    // A connection's place; leaves when it is destroyed. The ConnectionAdmission outlives it.
    class Place {
      public:
        // `evict` closes the connection, at once or soon; it is called at most once, and only while
        // the connection is a stranger's or rests between two requests.
        Place(ConnectionAdmission& of, const net::ip::address& remote, Instant now,
              std::function<void()> evict);
        ~Place();
        Place(const Place&) = delete;
        Place& operator=(const Place&) = delete;
        // The connection has shown a credential of the user's, and is at work until active(). Of a
        // user who has as many as one may, that gives way which has rested longest. False: all of
        // them are at work.
        bool known(const std::string& user);
        // It has been of use to somebody: others have waited longer. Rests from now on.
        void active();

      private:
        friend class ConnectionAdmission;
        using List = std::list<Place*>;
        void leave_strangers();
        void leave_address();
        void leave_user();
        void work();

        ConnectionAdmission& of_;
        net::ip::address key_;
        Instant since_;
        std::function<void()> evict_;
        bool stranger_ = true;
        bool rests_ = false;  // one of the user's
        std::string user_{};  // "" = none's
        List::iterator at_;   // of a stranger, or one that rests
    };

    explicit ConnectionAdmission(Caps caps) : caps_(caps) {}
    ConnectionAdmission(const ConnectionAdmission&) = delete;
    ConnectionAdmission& operator=(const ConnectionAdmission&) = delete;

    // Before one more connection from `remote` is taken in: makes room if that is needed and can
    // be. False: there is none.
    bool make_room(const net::ip::address& remote, Instant now);
    std::size_t size() const { return size_; }
    std::size_t evicted() const { return evicted_; }

  private:
    // Those that were sent away are still here until they have ended, and do not count.
    std::size_t staying() const { return size_ - leaving_; }
    bool evict_oldest(const net::ip::address& key, Instant now);
    bool make_room_of(const std::string& user);
    void send_away(Place& place);

    struct Own {
        std::size_t count = 0;
        Place::List resting;  // longest first
    };

    Caps caps_;
    std::size_t size_ = 0;
    std::size_t leaving_ = 0;
    std::size_t evicted_ = 0;
    std::map<net::ip::address, Place::List> strangers_;  // idle longest first; none is empty
    std::map<net::ip::address, std::size_t> addresses_;  // those that stay; none is 0
    std::map<std::string, Own> users_;                   // the same; by user
};

}  // namespace lockstep
