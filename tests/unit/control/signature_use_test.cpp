// How long the signatures of users are kept.
#include "tests/unit/control/control_fixture.hpp"

#include <set>

namespace lockstep {
namespace {

// Takes each as it comes; a signature is called as its nonce begins.
class HeldSignatures final : public Signatures {
  public:
    explicit HeldSignatures(std::filesystem::path runs) : runs_(std::move(runs)) {}
    const Signing& signing() const override { return signing_; }
    Task<Result<std::string>> take(std::string, Signature signature, std::string,
                                   std::string) override {
        names.insert(signature.nonce.substr(0, 3));
        co_return signature.nonce.substr(0, 3);
    }
    Result<std::string> document(const std::string&, const std::string&) const override {
        return "";
    }
    Status forget(const std::string& user, const std::string& name) override {
        EXPECT_EQ(user, "ada");
        names.erase(name);
        return {};
    }
    std::filesystem::path folder(const std::string&, const JobId& job,
                                 std::int32_t attempt) const override {
        return runs_ / job.value / ("a" + std::to_string(attempt));
    }
    Result<UniqueFd> open(const std::filesystem::path&) const override {
        return fail(Errc::not_found, "no file");
    }
    const std::filesystem::path& runs() const override { return runs_; }

    std::set<std::string> names;

  private:
    std::filesystem::path runs_;
    Signing signing_{"test"};
};

class SignatureUseTest : public ControlTest {
  protected:
    void SetUp() override {
        ControlTest::SetUp();
        scheduler_.signed_with = &signatures_;
        // Those two are all that the scheduler is handed: the others end without it.
        submit_signed("f01");
        submit_signed("f02");
        until([&] { return scheduler_.submissions == 2; }, "the window is full");
    }
    bool holds(const std::string& name) const { return signatures_.names.contains(name); }
    SubmitResult<Submitted> submit_signed(const std::string& name, int points = 1) {
        SubmitRequest request;
        const std::string document = R"({"name":"t","framework":"command","command":["x"]})";
        request.spec = parse_spec(*parse_json(document)).value();
        request.document = document;
        request.signature = Signature{name + std::string(kNonceBytes - name.size(), '0'), "x"};
        if (points > 1) {
            request.sweep.emplace();
            for (int i = 0; i < points; ++i) {
                SweepPoint point;
                point.parameters = Json::object();
                point.parameters["lr"] = i;
                point.shown = point.parameters;
                point.spec = request.spec;
                request.sweep->points.push_back(std::move(point));
            }
        }
        std::optional<SubmitResult<Submitted>> out;
        const auto run = [&]() -> Task<void> {
            Caller caller = ada_;
            SubmitRequest copy = request;
            auto submitting = control_->submit(std::move(caller), std::move(copy));
            out = co_await std::move(submitting);
        };
        wait(run());
        return *out;
    }
    void end(const std::string& id) {
        const auto run = [&]() -> Task<void> {
            Caller caller = ada_;
            std::string job = id;
            auto cancelling = control_->commands().cancel(std::move(caller), std::move(job));
            EXPECT_TRUE(co_await std::move(cancelling));
        };
        wait(run());
        until([&] { return state(id) == "cancelled"; }, "cancelled");
    }
    void remove(const std::string& id) {
        const auto run = [&]() -> Task<void> {
            Caller caller = ada_;
            std::string job = id;
            auto removing = control_->remove(std::move(caller), std::move(job), false);
            EXPECT_TRUE(co_await std::move(removing));
        };
        wait(run());
    }

    HeldSignatures signatures_{folder_ / "users"};
};

// They stayed for ever.
TEST_F(SignatureUseTest, ASignatureGoesWithItsJob) {
    const std::string first = submit_signed("aaa")->id;
    const std::string second = submit_signed("bbb")->id;
    end(first);
    end(second);
    EXPECT_TRUE(holds("aaa") && holds("bbb")) << "as long as the job is there";
    remove(first);
    EXPECT_FALSE(holds("aaa"));
    EXPECT_TRUE(holds("bbb"));
}

TEST_F(SignatureUseTest, ThatOfASweepStaysAsLongAsOneOfItsJobsIsNotOver) {
    const std::string first = submit_signed("abc", 2)->id;
    std::string second;
    const auto find = [&]() -> Task<void> {
        Caller caller = ada_;
        JobQuery query;
        auto listing = control_->list(std::move(caller), std::move(query));
        const auto text = co_await std::move(listing);
        const auto page = parse_json(*text);
        for (const Json& one : (*page)["items"]) {
            const auto id = one["id"].get<std::string>();
            if (id != first && one.contains("sweep")) {
                second = id;
            }
        }
    };
    wait(find());
    ASSERT_NE(second, "");
    end(first);
    remove(first);
    EXPECT_TRUE(holds("abc"));
    end(second);
    remove(second);
    EXPECT_FALSE(holds("abc"));
}

TEST_F(SignatureUseTest, OfWhatIsNotStoredNoSignatureStays) {
    scheduler_.signed_with = nullptr;
    fill_store();
    scheduler_.signed_with = &signatures_;
    const auto refused = submit_signed("aaa");
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Errc::exhausted);
    EXPECT_FALSE(holds("aaa"));
}

}  // namespace
}  // namespace lockstep
