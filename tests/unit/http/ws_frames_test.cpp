// The framing of RFC 6455, as a server reads and writes it.
#include "daemon/http/base/ws_frames.hpp"

#include "tests/support/read_frames.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace lockstep::ws {
namespace {

using Kind = FrameReader::Kind;
constexpr std::array<char, 4> kMask{'\x12', '\x00', '\xfe', '\x7a'};

// A client's frame. `first` has FIN, the reserved bits and the opcode.
std::string frame(unsigned first, std::string payload, std::array<char, 4> mask = kMask) {
    const Head head = head_of(Opcode::text, payload.size());
    std::string out{head.view()};
    out[0] = static_cast<char>(first);
    out[1] = static_cast<char>(static_cast<unsigned char>(out[1]) | 0x80U);
    out.append(mask.data(), mask.size());
    for (std::size_t i = 0; i < payload.size(); ++i) {
        out += static_cast<char>(payload[i] ^ mask[i % 4]);
    }
    return out;
}

using Got = test::Frames::One;

// Everything that comes out of the bytes, fed in pieces of that size.
std::vector<Got> read(const std::string& bytes, std::size_t piece = SIZE_MAX,
                      std::size_t most = 1000) {
    return test::read_frames(bytes, piece, most).all;
}

TEST(WsFrames, TheStandardsOwnHandshake) {
    EXPECT_EQ(accept_of("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
}

TEST(WsFrames, AHeadSaysTheSizeInTheShortestWay) {
    EXPECT_EQ(head_of(Opcode::text, 125).view(), std::string_view("\x81\x7d", 2));
    EXPECT_EQ(head_of(Opcode::binary, 126).view(), std::string_view("\x82\x7e\x00\x7e", 4));
    EXPECT_EQ(head_of(Opcode::text, 65'535).view(), std::string_view("\x81\x7e\xff\xff", 4));
    EXPECT_EQ(head_of(Opcode::text, 65'536).view(),
              std::string_view("\x81\x7f\x00\x00\x00\x00\x00\x01\x00\x00", 10));
    EXPECT_EQ(head_of(Opcode::close, 0).view(), std::string_view("\x88\x00", 2));
}

TEST(WsFrames, MessagesComeOutHoweverTheirBytesArrive) {
    const std::string large(70'000, 'l');
    const std::string middle(300, 'm');
    const std::string bytes = frame(0x81, "hello") + frame(0x82, middle) + frame(0x81, "") +
                              frame(0x82, large) + frame(0x81, "gr\xc3\xbc\xc3\x9f", {}) +
                              frame(0x89, "are you there") + frame(0x8A, "yes");
    const std::vector<Got> expected{{Kind::text, "hello", 0},
                                    {Kind::binary, middle, 0},
                                    {Kind::text, "", 0},
                                    {Kind::binary, large, 0},
                                    {Kind::text, "gr\xc3\xbc\xc3\x9f", 0},
                                    {Kind::ping, "are you there", 0},
                                    {Kind::pong, "yes", 0}};
    for (const std::size_t piece : {SIZE_MAX, std::size_t{65'536}, std::size_t{1000},
                                    std::size_t{7}, std::size_t{2}, std::size_t{1}}) {
        EXPECT_EQ(read(bytes, piece, 100'000), expected) << piece;
    }
}

TEST(WsFrames, FragmentsAreOneMessageAndControlFramesComeBetween) {
    const std::string bytes = frame(0x01, "one ") + frame(0x89, "p") + frame(0x00, "two ") +
                              frame(0x80, "three") + frame(0x82, "next");
    const std::vector<Got> expected{
        {Kind::ping, "p", 0}, {Kind::text, "one two three", 0}, {Kind::binary, "next", 0}};
    EXPECT_EQ(read(bytes), expected);
    EXPECT_EQ(read(bytes, 1), expected);
    // A character may be cut by a fragment's end, not by the message's.
    EXPECT_EQ(read(frame(0x01, "\xc3") + frame(0x80, "\xbc")),
              (std::vector<Got>{{Kind::text, "\xc3\xbc", 0}}));
}

TEST(WsFrames, CloseBringsItsCodeAndReason) {
    EXPECT_EQ(read(frame(0x88, close_payload(1001, "going"))),
              (std::vector<Got>{{Kind::close, std::string("\x03\xe9going"), 0}}));
    EXPECT_EQ(read(frame(0x88, "")), (std::vector<Got>{{Kind::close, "", 0}}));
    EXPECT_EQ(read(frame(0x88, close_payload(4999, ""))).front().kind, Kind::close);
    EXPECT_EQ(read(frame(0x88, close_payload(1001, "\xff"))),
              (std::vector<Got>{{Kind::broken, "", kNotUtf8}}));
    EXPECT_EQ(close_payload(kNormal, std::string(200, 'x')).size(), kControlBytes);
}

TEST(WsFrames, WhatTheStandardForbidsBreaksTheConnection) {
    const Got error{Kind::broken, "", kProtocolError};
    std::string unmasked{head_of(Opcode::text, 2).view()};
    unmasked += "hi";
    std::string long_way = frame(0x81, std::string(126, 'x'));
    long_way[3] = '\x05';  // five bytes, said in two more
    const std::vector<std::string> table{unmasked,
                                         long_way,
                                         frame(0xC1, "reserved bit"),
                                         frame(0x83, "reserved opcode"),
                                         frame(0x8B, "reserved control"),
                                         frame(0x80, "nothing to go on with"),
                                         frame(0x09, "a control frame in pieces"),
                                         frame(0x89, std::string(126, 'x')),
                                         frame(0x88, "x"),
                                         frame(0x88, close_payload(0, "")),
                                         frame(0x88, close_payload(1005, "")),
                                         frame(0x88, close_payload(1006, "lost")),
                                         frame(0x88, close_payload(5000, "")),
                                         frame(0x01, "first") + frame(0x81, "no fragment")};
    for (const std::string& bytes : table) {
        EXPECT_EQ(read(bytes), std::vector<Got>{error}) << bytes;
        EXPECT_EQ(read(bytes, 1), std::vector<Got>{error}) << bytes;
    }
}

TEST(WsFrames, WhatIsTooLargeIsRefusedBeforeItHasCome) {
    const std::vector<Got> refused{{Kind::broken, "", kTooBig}};
    EXPECT_EQ(read(frame(0x82, std::string(1001, 'x')).substr(0, 8)), refused);
    EXPECT_EQ(read(frame(0x02, std::string(600, 'x')) + frame(0x80, std::string(401, 'x'))),
              refused);
    EXPECT_EQ(read(frame(0x82, std::string(1000, 'x'))).size(), 1U);
}

TEST(WsFrames, TextIsUtf8) {
    for (const char* good : {"\x7f", "\xc2\x80", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
                             "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf", "12345678\xc3\xbc"}) {
        EXPECT_EQ(read(frame(0x81, good))[0].kind, Kind::text) << good;
    }
    for (const char* bad : {"\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80",
                            "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80", "\xff",
                            "12345678\xc3", "\xe2\x82", "\xc3(345678"}) {
        EXPECT_EQ(read(frame(0x81, bad)), (std::vector<Got>{{Kind::broken, "", kNotUtf8}})) << bad;
        EXPECT_EQ(read(frame(0x82, bad))[0].kind, Kind::binary);
    }
}

TEST(WsFrames, AQuietConnectionHoldsNothing) {
    FrameReader reader{4U << 20U};
    std::string bytes = frame(0x82, std::string(1U << 20U, 'x'));
    const std::span<char> all{bytes};
    reader.feed(all.first(500'000));
    EXPECT_EQ(reader.next().kind, Kind::none);
    EXPECT_GE(reader.kept(), 500'000U);
    reader.feed(all.subspan(500'000));
    EXPECT_EQ(reader.next().kind, Kind::binary);
    EXPECT_EQ(reader.next().kind, Kind::none);
    EXPECT_LT(reader.kept(), 1000U);
}

TEST(WsFrames, NoiseIsSurvivedAndReadTheSameHoweverItArrives) {
    std::minstd_rand random{7};  // the same every time
    std::size_t whole = 0;
    for (int round = 0; round < 10'000; ++round) {
        std::string bytes = frame(0x81, "hello") + frame(0x01, "one") + frame(0x89, "there?") +
                            frame(0x80, "two") + frame(0x82, std::string(300, 'x')) +
                            frame(0x88, "\x03\xe8");
        for (auto changes = random() % 4; changes > 0; --changes) {
            bytes[random() % bytes.size()] = static_cast<char>(random());
        }
        bytes.resize(bytes.size() - (random() % 3 == 0 ? random() % 40 : 0));
        const auto all = read(bytes);
        EXPECT_EQ(read(bytes, 1 + random() % bytes.size()), all) << "round " << round;
        EXPECT_EQ(read(bytes, 1), all) << "round " << round;
        whole += all.size() == 5 ? 1U : 0U;
    }
    EXPECT_GT(whole, 1000U) << "some came as they were";
}

}  // namespace
}  // namespace lockstep::ws
