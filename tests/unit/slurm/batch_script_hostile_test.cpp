// Whatever a spec holds: it is refused by field, or its script is that of a harmless one.
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/slurm/batch_script_fixture.hpp"

#include <gtest/gtest.h>
#include <re2/re2.h>

#include <cstdlib>
#include <fstream>
#include <random>
#include <set>

namespace lockstep::slurm {
namespace {

constexpr const char* kMarker = "zqxj";

class Hostile {
  public:
    explicit Hostile(unsigned seed) : random_(seed) {}

    std::size_t below(std::size_t bound) { return random_() % bound; }

    std::string text() {
        static const std::vector<std::string> kParts{"\n",
                                                     "\r\n",
                                                     "\r",
                                                     std::string(1, '\0'),
                                                     "\t",
                                                     " ",
                                                     "'",
                                                     "\"",
                                                     "`id`",
                                                     "$(id)",
                                                     "$HOME",
                                                     "${IFS}",
                                                     ";",
                                                     "&&",
                                                     "|",
                                                     "#",
                                                     "\\",
                                                     "\\\n",
                                                     "\n#SBATCH --hold\n",
                                                     "\n#SLURM --uid=0\n",
                                                     "\n#SBATCH hetjob\n",
                                                     "--wrap=id",
                                                     "%j",
                                                     "*",
                                                     "?",
                                                     "[",
                                                     "]",
                                                     "(",
                                                     ")",
                                                     "!",
                                                     "~",
                                                     "<",
                                                     ">",
                                                     "\xC3\xA4",
                                                     "\xE2\x80\xA8",
                                                     "\xEF\xBB\xBF",
                                                     "\xFF\xFE",
                                                     "\x7F",
                                                     "\x1B[2J",
                                                     "../",
                                                     "/",
                                                     ",",
                                                     ".",
                                                     "_",
                                                     "-",
                                                     "=",
                                                     ":",
                                                     "@",
                                                     "+",
                                                     "EOF\n",
                                                     "A",
                                                     "9",
                                                     "\n. /etc/profile\n"};
        if (below(50) == 0) {
            return kMarker + std::string(64U << 10U, "a\n '"[below(4)]);
        }
        std::string out = below(2) == 0 ? kMarker : "";
        for (auto left = 1 + below(6); left > 0; --left) {
            out += kParts[below(kParts.size())];
        }
        return out + kMarker;
    }

    // Puts a hostile text into one of the spec's texts, or names.
    void spoil(Json& spec) {
        static const std::vector<const char*> kFields{"/name",
                                                      "/framework",
                                                      "/launch",
                                                      "/submission",
                                                      "/working_directory",
                                                      "/command/0",
                                                      "/command/1",
                                                      "/environment/A",
                                                      "/labels/team",
                                                      "/resources/time_limit",
                                                      "/slurm/partition",
                                                      "/slurm/account",
                                                      "/slurm/qos",
                                                      "/slurm/constraint",
                                                      "/slurm/reservation",
                                                      "/slurm/nodelist",
                                                      "/slurm/exclude",
                                                      "/checkpoint/directory",
                                                      "/checkpoint/signal",
                                                      "/capture/preset",
                                                      "/capture/loss"};
        static const std::vector<const char*> kFree{"/command/1", "/command/2", "/environment/A",
                                                    "/environment/B", "/labels/team"};
        static const std::vector<const char*> kMaps{"/environment", "/labels", "/slurm/directives",
                                                    "/slurm", ""};
        const auto options = directives_;
        switch (below(8)) {
            case 0: {
                spec[Json::json_pointer{kMaps[below(kMaps.size())]}][text()] = text();
                break;
            }
            case 1:
            case 2: {
                spec["slurm"]["directives"][options[below(options.size())]] = text();
                break;
            }
            case 3:
            case 4: {
                spec[Json::json_pointer{kFree[below(kFree.size())]}] = text();
                break;
            }
            default:
                spec[Json::json_pointer{kFields[below(kFields.size())]}] = text();
        }
    }

  private:
    std::mt19937 random_;
    const std::vector<std::string> directives_{"switches", "comment",   "gres",   "licenses",
                                               "begin",    "mail-user", "wckey",  "constraint",
                                               "job-name", "wrap",      "output", "network"};
};

// Everything a user may write freely, made harmless; what places the job stays.
JobSpec harmless(JobSpec spec) {
    spec.command = {"true"};
    spec.environment.clear();
    spec.labels.clear();
    spec.working_directory.clear();
    spec.checkpoint.directory.clear();
    spec.capture = CaptureSpec{};
    return spec;
}

const std::set<std::string>& known_options() {
    static const std::set<std::string> options{
        "job-name", "partition", "account", "qos", "reservation", "constraint", "nodelist",
        "exclude", "exclusive", "nodes", "ntasks-per-node", "cpus-per-task", "mem", "gpus-per-node",
        "gres", "time", "signal", "no-requeue", "kill-on-invalid-dep", "export", "chdir", "output",
        "open-mode",
        // directives of kEverything, and those that a hostile text can pass the grammar of
        "switches", "contiguous", "nice", "mail-type", "mail-user", "comment", "network",
        "licenses", "begin", "wckey"};
    return options;
}

void expect_known_lines(const std::string& script) {
    static const RE2 line{"--([a-z-]+)(?:=[A-Za-z0-9_.,:&|*()\\[\\]!+=@/-]+)?"};
    static const RE2 quoted{"--(comment)=\"[A-Za-z0-9_.,:+=@/-][A-Za-z0-9_.,:+=@/ -]*\""};
    std::set<std::string> seen;
    for (const auto& text : sbatch_lines(script)) {
        std::string option;
        ASSERT_TRUE(RE2::FullMatch(text, line, &option) || RE2::FullMatch(text, quoted, &option))
            << text;
        EXPECT_EQ(known_options().count(option), 1U) << text;
        EXPECT_TRUE(seen.insert(option).second) << text;
    }
    for (const char c : script) {
        ASSERT_TRUE(c == '\n' || (c >= ' ' && c <= '~')) << static_cast<int>(c);
    }
}

TEST(BatchScript, OfAHostileSpecIsRefusedOrThatOfAHarmlessOne) {
    Hostile hostile{20261121};
    const test::TemporaryFolder folder;
    const Json base = *parse_json(kEverything);
    int accepted = 0;
    int refused = 0;
    std::string sample;
    for (int i = 0; i < 10'000; ++i) {
        Json json = base;
        for (auto spoiled = 1 + hostile.below(4) / 3; spoiled > 0; --spoiled) {
            hostile.spoil(json);
        }
        const auto spec = parse_spec(json);
        if (!spec) {
            ++refused;
            ASSERT_FALSE(spec.error().fields.empty());
            for (const auto& field : spec.error().fields) {
                ASSERT_TRUE(field.pointer.starts_with('/')) << field.pointer;
            }
            continue;
        }
        ++accepted;
        const auto script = make_batch_script(request_of(*spec), site());
        const auto expected = make_batch_script(request_of(harmless(*spec)), site());
        ASSERT_TRUE(script.has_value()) << script.error().message;
        ASSERT_EQ(script->text, expected->text);
        expect_known_lines(script->text);
        if (accepted % 100 == 0) {
            const std::string path = (folder.path() / "batch.sh").string();
            std::ofstream{path} << script->text;
            ASSERT_EQ(std::system(("bash -n " + path).c_str()), 0) << script->text;
        }
    }
    // Both branches were taken often enough to mean something.
    EXPECT_GT(accepted, 1500);
    EXPECT_GT(refused, 1500);
}

}  // namespace
}  // namespace lockstep::slurm
