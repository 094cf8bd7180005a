// size: a receiver, a sendmail and what each makes of notices
// Notices on their way: real HTTP servers and programs, the test's own clock.
#include "daemon/control/notices/notifier.hpp"

#include "daemon/control/notices/mail_message.hpp"
#include "daemon/store/database.hpp"
#include "daemon/store/job_records.hpp"
#include "daemon/store/notice_records.hpp"
#include "job/base/unique_fd.hpp"
#include "tests/unit/control/control_fixture.hpp"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <mutex>
#include <thread>

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

// Answers each request with the next of its answers, the last one again and again; "" = never.
class Receiver {
  public:
    explicit Receiver(std::vector<std::string> answers)
        : answers_(std::move(answers)),
          listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in at{};
        at.sin_family = AF_INET;
        at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        ::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at);
        ::listen(listener_.get(), 64);
        socklen_t size = sizeof at;
        ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&at), &size);
        port_ = ntohs(at.sin_port);
        thread_ = std::thread{[this] { serve(); }};
    }
    ~Receiver() {
        ::shutdown(listener_.get(), SHUT_RDWR);
        thread_.join();
    }
    Receiver(const Receiver&) = delete;
    Receiver& operator=(const Receiver&) = delete;

    std::string target(const std::string& host = "127.0.0.1") const {
        return "webhook:http://" + host + ":" + std::to_string(port_) + "/hook?key=SECRET";
    }
    std::vector<std::string> requests() const {
        const std::lock_guard lock{mutex_};
        return requests_;
    }
    std::size_t count() const { return requests().size(); }

  private:
    void serve() {
        std::vector<UniqueFd> silent;
        for (std::size_t i = 0;; ++i) {
            UniqueFd fd{::accept(listener_.get(), nullptr, nullptr)};
            if (!fd) {
                return;
            }
            const std::string answer = answers_[std::min(i, answers_.size() - 1)];
            std::string request = whole_request(fd.get());
            {
                const std::lock_guard lock{mutex_};
                requests_.push_back(std::move(request));
            }
            if (answer.empty()) {
                silent.push_back(std::move(fd));
            } else {
                const std::string text = "HTTP/1.1 " + answer + "\r\nContent-Length: 0\r\n\r\n";
                ::send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL);
            }
        }
    }
    static std::string whole_request(int fd) {
        std::string all;
        char byte = 0;
        while (all.find("\r\n\r\n") == std::string::npos && ::recv(fd, &byte, 1, 0) == 1) {
            all += byte;
        }
        const auto at = all.find("Content-Length: ");
        const auto size = at == std::string::npos ? 0 : std::stoul(all.substr(at + 16));
        std::string body(size, '\0');
        const auto got = size == 0 ? 0 : ::recv(fd, body.data(), size, MSG_WAITALL);
        return all + body.substr(0, static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    }

    const std::vector<std::string> answers_;
    UniqueFd listener_;
    std::uint16_t port_ = 0;
    mutable std::mutex mutex_;
    std::vector<std::string> requests_;
    std::thread thread_;
};

// A store with notices and a notifier, without jobs.
class NotifierTest : public ::testing::Test {
  protected:
    void SetUp() override { boot(); }
    void TearDown() override { shut_down(); }

    void boot() {
        io_ = std::make_unique<net::io_context>(1);
        store_ = std::make_unique<Store>(*io_, std::move(Database::open(folder_ / "db").value()),
                                         Store::Hooks{});
        metrics_ = std::make_unique<telemetry::DaemonMetrics>();
        ControlSettings settings;
        settings.notify = notify_;
        context_ = std::make_unique<ControlContext>(*io_, clock_, *store_, scheduler_, *metrics_,
                                                    std::move(settings));
        notifier_ = std::make_unique<Notifier>(*context_);
        notifier_->begin("https://lockstep.example:8470");
    }
    void shut_down() {
        if (!notifier_) {
            return;
        }
        notifier_->halt();
        wait(context_->tasks.join());
        store_->stop();
        notifier_.reset();
        context_.reset();
        metrics_.reset();
        store_.reset();
        io_.reset();
    }
    void wait(Task<void> task) {
        bool done = false;
        auto run = [&done](Task<void> inner) -> Task<void> {
            co_await std::move(inner);
            done = true;
        };
        net::co_spawn(*io_, run(std::move(task)), net::detached);
        while (!done) {
            ASSERT_GT(io_->run_one_for(60s), 0U);
        }
    }
    void until(const std::function<bool()>& condition, const char* what) {
        const auto deadline = std::chrono::steady_clock::now() + 60s;
        while (!condition()) {
            if (std::chrono::steady_clock::now() >= deadline) {
                throw std::runtime_error(std::string{"never came: "} + what);
            }
            io_->run_one_for(20ms);
        }
    }
    // The end of a job of ada's that asks for these targets, as control stores it.
    JobId tell(const std::vector<std::string>& targets, const std::string& user = "ada") {
        const Seq seq = store_->next_seq();
        Job job;
        job.id = make_job_id(clock_.wall());
        job.user = user;
        job.spec.name = "t";
        job.spec.framework = Framework::command;
        job.spec.notify = targets;
        job.state = JobState::failed;
        job.finished_at = clock_.wall();
        job.cause.kind = CauseClass::rank_exit;
        job.cause.message = "rank 1 exited with 3";
        Append append;
        Event event;
        event.seq = seq;
        event.job = job.id;
        event.time = clock_.wall();
        event.data = event::Finished{JobState::failed, job.cause, 5};
        append.events = {event};
        append.row.id = job.id;
        append.row.user = user;
        append.row.state = JobState::failed;
        append.row.finished_at = job.finished_at;
        append.row.last_seq = seq;
        append.row.view = "{}";
        OwedNotices owed = notifier_->owed(job, append.events);
        append.notices = owed.rows;
        stored_ = append.notices.size();
        auto store = [&]() -> Task<void> {
            Append copy = append;
            const Status done = co_await store_->append(std::move(copy));
            EXPECT_TRUE(done.has_value());
        };
        wait(store());
        notifier_->stored(std::move(owed));
        return job.id;
    }
    // A job of ada's that has succeeded, and tells this receiver; nothing of it is stored.
    Job job_that_tells(const Receiver& receiver) {
        Job job;
        job.id = make_job_id(clock_.wall());
        job.user = "ada";
        job.spec.name = "t";
        job.spec.notify = {receiver.target()};
        job.state = JobState::succeeded;
        return job;
    }
    static Event end_of(const Job& job) {
        Event event;
        event.job = job.id;
        event.data = event::Finished{JobState::succeeded, {}, -1};
        return event;
    }
    NoticeQueue queue() {
        NoticeQueue out;
        auto look = [&]() -> Task<void> {
            NoticeQuery query;
            query.now = clock_.wall();
            query.latest = query.now + 1'000'000'000;
            query.of_lane = 1000;
            query.most = 1000;
            const std::function<Result<NoticeQueue>(Database&)> read = [query](Database& db) {
                return NoticeRecords{db}.queue(query);
            };
            auto found = co_await store_->read<NoticeQueue>(read);
            EXPECT_TRUE(found.has_value());
            out = found ? *found : NoticeQueue{};
        };
        wait(look());
        return out;
    }
    std::size_t waiting() {
        std::size_t out = 0;
        for (const auto& [user, count] : queue().waiting) {
            out += count;
        }
        return out;
    }
    double counted(const std::string& kind, const std::string& result) const {
        for (const auto& family : metrics_->registry().Collect()) {
            for (const auto& metric : family.metric) {
                std::map<std::string, std::string> labels;
                for (const auto& label : metric.label) {
                    labels[label.name] = label.value;
                }
                if (family.name == "lockstep_notices_total" && labels["kind"] == kind &&
                    labels["result"] == result) {
                    return metric.counter.value;
                }
            }
        }
        return -1;
    }
    // A program in place of sendmail: keeps what it got, ends as the file `exit` says.
    void have_sendmail() {
        const std::string folder = folder_.path().string();
        const std::string text = "#!/bin/sh\nprintf '%s\\n' \"$@\" >> " + folder +
                                 "/arguments\ncat >> " + folder + "/mail\nexit $(cat " + folder +
                                 "/exit)\n";
        ASSERT_TRUE(write_file_atomic(folder_ / "sendmail", text, 0755));
        sendmail_ends(0);
        notify_.sendmail = (folder_ / "sendmail").string();
        shut_down();
        boot();
    }
    void sendmail_ends(int code) {
        ASSERT_TRUE(write_file_atomic(folder_ / "exit", std::to_string(code) + "\n"));
    }
    std::string kept(const char* name) const {
        return read_file(folder_ / name, 1'000'000).value_or("");
    }

    const test::TemporaryFolder folder_;
    TestClock clock_;
    TestScheduler scheduler_;
    NotifySettings notify_{true, {"127.0.0.1", "localhost"}, ""};
    std::unique_ptr<net::io_context> io_;
    std::unique_ptr<Store> store_;
    std::unique_ptr<telemetry::DaemonMetrics> metrics_;
    std::unique_ptr<ControlContext> context_;
    std::unique_ptr<Notifier> notifier_;
    std::size_t stored_ = 0;
};

TEST_F(NotifierTest, AWebhookGetsWhatHappenedAsJson) {
    const Receiver receiver{{"204 No Content"}};
    const JobId job = tell({receiver.target()});
    until([&] { return counted("webhook", "delivered") == 1; }, "it is delivered");
    until([&] { return waiting() == 0; }, "it goes from the store");
    const auto requests = receiver.requests();
    ASSERT_EQ(requests.size(), 1U);
    EXPECT_TRUE(requests[0].starts_with("POST /hook?key=SECRET HTTP/1.1\r\n")) << requests[0];
    EXPECT_THAT(requests[0], HasSubstr("Content-Type: application/json\r\n"));
    EXPECT_THAT(requests[0], HasSubstr("Idempotency-Key: " + job.value + "-1\r\n"));
    const auto body = parse_json(requests[0].substr(requests[0].find("\r\n\r\n") + 4));
    ASSERT_TRUE(body.has_value());
    EXPECT_EQ((*body)["event"].get<std::string>(), "failed");
    EXPECT_EQ((*body)["job"]["id"].get<std::string>(), job.value);
    EXPECT_EQ((*body)["job"]["state"].get<std::string>(), "failed");
    EXPECT_EQ((*body)["job"]["cause"]["class"].get<std::string>(), "rank_exit");
    EXPECT_EQ((*body)["url"].get<std::string>(),
              "https://lockstep.example:8470/#/jobs/" + job.value);
}

TEST_F(NotifierTest, WhatFailsIsTriedAgainLaterAndLater) {
    const Receiver receiver{{"500 Oops", "429 Slow Down", "408 Late", "200 OK"}};
    tell({receiver.target()});
    for (const int tries : {1, 2, 3}) {
        until([&] { return counted("webhook", "failed") == tries; }, "a try fails");
        until([&] { return queue().next_due > clock_.wall(); }, "the next one is chosen");
        const NoticeQueue later = queue();
        EXPECT_EQ(later.next_due - clock_.wall(),
                  std::chrono::milliseconds{notice_pause(tries)}.count());
        EXPECT_TRUE(later.due.empty());
        notifier_->wake();
        EXPECT_EQ(receiver.count(), static_cast<std::size_t>(tries)) << "not sooner";
        clock_.advance(std::chrono::milliseconds{later.next_due - clock_.wall()});
        notifier_->wake();
    }
    until([&] { return counted("webhook", "delivered") == 1; }, "it is delivered");
    const auto requests = receiver.requests();
    ASSERT_EQ(requests.size(), 4U);
    EXPECT_EQ(requests[0], requests[3]) << "the same key and the same bytes";
}

TEST(NoticePause, DoublesUpToAnHour) {
    EXPECT_EQ(notice_pause(1), 5s);
    EXPECT_EQ(notice_pause(2), 10s);
    EXPECT_EQ(notice_pause(10), 2560s);
    EXPECT_EQ(notice_pause(11), 3600s);
    EXPECT_EQ(notice_pause(2'000'000'000), 3600s);
    EXPECT_EQ(notice_pause(1, 60s), 60s);
    EXPECT_EQ(notice_pause(3, 1s), 20s) << "not sooner than it would be";
    EXPECT_EQ(notice_pause(1, 86'400s), 3600s);
}

TEST_F(NotifierTest, AnAnswerThatWouldBeTheSameAgainIsFinal) {
    for (const char* answer : {"400 Bad", "404 Gone", "410 Gone", "301 Moved\r\nLocation: /x"}) {
        const double before = counted("webhook", "given_up");
        const Receiver receiver{{answer}};
        tell({receiver.target()});
        until([&] { return counted("webhook", "given_up") == before + 1; }, answer);
        until([&] { return waiting() == 0; }, "it goes from the store");
        EXPECT_EQ(receiver.count(), 1U);
    }
}

TEST_F(NotifierTest, ADayLaterItIsGivenUp) {
    const Receiver receiver{{"503 Busy"}};
    tell({receiver.target()});
    until([&] { return counted("webhook", "failed") == 1; }, "a try fails");
    until([&] { return queue().next_due > clock_.wall(); }, "the next one is chosen");
    clock_.advance(24h);
    notifier_->wake();
    until([&] { return counted("webhook", "given_up") == 1; }, "it is given up");
    until([&] { return waiting() == 0; }, "it goes from the store");
}

TEST_F(NotifierTest, OneThatHangsHoldsUpNoOther) {
    const Receiver silent{{""}};
    const Receiver receiver{{"200 OK"}};
    for (int i = 0; i < 5; ++i) {
        tell({silent.target("localhost")});
    }
    until([&] { return silent.count() == 2; }, "two are under way there");
    for (int i = 0; i < 3; ++i) {
        tell({receiver.target()});
    }
    until([&] { return receiver.count() == 3; }, "the other gets all of its own");
    EXPECT_EQ(silent.count(), 2U);
    const auto begun = std::chrono::steady_clock::now();
    shut_down();
    EXPECT_LT(std::chrono::steady_clock::now() - begun, 9s) << "nor the end";
}

TEST_F(NotifierTest, WhatWasNotDeliveredIsAfterARestart) {
    const Receiver receiver{{"500 Oops", "200 OK"}};
    const JobId job = tell({receiver.target()});
    until([&] { return counted("webhook", "failed") == 1; }, "a try fails");
    until([&] { return queue().next_due > clock_.wall(); }, "the next one is chosen");
    shut_down();
    clock_.advance(5s);
    boot();
    until([&] { return counted("webhook", "delivered") == 1; }, "the next daemon delivers it");
    EXPECT_THAT(receiver.requests().back(), HasSubstr("Idempotency-Key: " + job.value + "-1\r\n"));
}

TEST_F(NotifierTest, AJobsUserDoesNotReachThisMachineThroughIt) {
    notify_.hosts.clear();
    shut_down();
    boot();
    const Receiver receiver{{"200 OK"}};
    // By its address, and by what the resolver makes of an odd way to write it.
    for (const char* host : {"127.0.0.1", "localhost", "2130706433", "0.0.0.0", "127.1"}) {
        const double before = counted("webhook", "given_up");
        tell({receiver.target(host)});
        until([&] { return counted("webhook", "given_up") == before + 1; }, host);
    }
    EXPECT_EQ(receiver.count(), 0U);
}

TEST_F(NotifierTest, SettingsThatChangedSinceCount) {
    const Receiver receiver{{"500 Oops"}};
    tell({receiver.target()});
    until([&] { return counted("webhook", "failed") == 1; }, "a try fails");
    until([&] { return queue().next_due > clock_.wall(); }, "the next one is chosen");
    notify_.webhooks = false;
    shut_down();
    clock_.advance(5s);
    boot();
    until([&] { return counted("webhook", "given_up") == 1; }, "it is given up");
    EXPECT_EQ(receiver.count(), 1U);
}

TEST_F(NotifierTest, AMailIsHandedToSendmailAsWords) {
    have_sendmail();
    const JobId job = tell({"mail", "mail:team@example.org"});
    until([&] { return counted("mail", "delivered") == 2; }, "both are delivered");
    const std::string arguments = kept("arguments");
    EXPECT_THAT(arguments, HasSubstr("-i\n--\nada\n"));
    EXPECT_THAT(arguments, HasSubstr("-i\n--\nteam@example.org\n"));
    const std::string mail = kept("mail");
    EXPECT_THAT(mail, HasSubstr("To: ada\nSubject: [lockstep] t has failed\n"));
    EXPECT_THAT(mail, HasSubstr("Message-ID: <" + job.value + "-1.lockstep@"));
    EXPECT_THAT(mail, HasSubstr("rank 1 exited with 3"));
    EXPECT_THAT(mail, HasSubstr("https://lockstep.example:8470/#/jobs/" + job.value + "\n"));
}

TEST_F(NotifierTest, SendmailsErrorsAreTemporaryOrFinal) {
    have_sendmail();
    sendmail_ends(75);  // EX_TEMPFAIL
    tell({"mail"});
    until([&] { return counted("mail", "failed") == 1; }, "it is tried again");
    until([&] { return queue().next_due > clock_.wall(); }, "the next one is chosen");
    sendmail_ends(67);  // EX_NOUSER
    clock_.advance(5s);
    notifier_->wake();
    until([&] { return counted("mail", "given_up") == 1; }, "it is given up");
}

TEST_F(NotifierTest, WhoHasTooManyWaitingGetsNoMore) {
    const Receiver receiver{{"500 Oops"}};
    Job job = job_that_tells(receiver);
    Event event = end_of(job);
    std::size_t given = 0;
    for (std::size_t i = 0; i < limits::kNoticesWaiting + 5; ++i) {
        event.seq = static_cast<Seq>(i + 1);
        OwedNotices owed = notifier_->owed(job, {event});
        given += owed.rows.size();
        notifier_->stored(std::move(owed));
    }
    EXPECT_EQ(given, limits::kNoticesWaiting);
    EXPECT_EQ(counted("webhook", "dropped"), 5);
    job.user = "bob";
    EXPECT_EQ(notifier_->owed(job, {event}).rows.size(), 1U);
}

// A full disk refuses a job's append each second: with some dozens of jobs a user's notices were
// dropped.
TEST_F(NotifierTest, WhatWasNotStoredDoesNotCount) {
    const Receiver receiver{{"500 Oops"}};
    const Job job = job_that_tells(receiver);
    const Event event = end_of(job);
    for (std::size_t i = 0; i < 2 * limits::kNoticesWaiting; ++i) {
        EXPECT_EQ(notifier_->owed(job, {event}).rows.size(), 1U) << "try " << i;
    }
    EXPECT_EQ(counted("webhook", "dropped"), 0);
}

// Appends of many jobs are under way at once, say of all that ran after one that failed.
TEST_F(NotifierTest, WhatIsOnItsWayToTheStoreCounts) {
    const Receiver receiver{{"500 Oops"}};
    const Job job = job_that_tells(receiver);
    const Event event = end_of(job);
    std::vector<OwedNotices> under_way;
    for (std::size_t i = 0; i < limits::kNoticesWaiting; ++i) {
        under_way.push_back(notifier_->owed(job, {event}));
        ASSERT_EQ(under_way.back().rows.size(), 1U);
    }
    EXPECT_EQ(notifier_->owed(job, {event}).dropped.size(), 1U);
    notifier_->stored(std::move(under_way.back()));
    under_way.pop_back();
    EXPECT_EQ(notifier_->owed(job, {event}).dropped.size(), 1U);
    under_way.pop_back();  // refused
    EXPECT_EQ(notifier_->owed(job, {event}).rows.size(), 1U);
}

TEST(MailMessage, IsOneThatMailSystemsTake) {
    const std::string message =
        mail_message({"subject", "text\n"}, "ada@example.org", "id@host", 1'700'000'000'000);
    EXPECT_TRUE(
        message.starts_with("To: ada@example.org\nSubject: subject\n"
                            "Date: Tue, 14 Nov 2023 22:13:20 +0000\n"
                            "Message-ID: <id@host>\n"))
        << message;
    EXPECT_TRUE(message.ends_with("\n\ntext\n"));
}

}  // namespace
}  // namespace lockstep
