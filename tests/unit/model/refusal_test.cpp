// Why a program did not begin, in its own last words. The texts are what click 8.5, typer 0.29,
// absl 2.5, Fire 0.7, jsonargparse 4.53, tyro 1.0, torchrun, CPython 3.11, dash, bash and env
// print.
#include "job/model/refusal.hpp"

#include "job/model/failure.hpp"

#include <gtest/gtest.h>

#include <csignal>

namespace lockstep {
namespace {

struct Printed {
    std::int32_t code;
    const char* output;
    const char* words;
};

void expect_words(const std::vector<Printed>& all) {
    for (const Printed& one : all) {
        EXPECT_EQ(printed_refusal(one.output, one.code).value_or("(none)"), one.words)
            << one.output;
    }
}

TEST(Refusal, WhatClickAndTyperSayOfArgumentsIsToldInTheirWords) {
    const std::string usage = "Usage: c.py [OPTIONS]\nTry 'c.py --help' for help.\n\n";
    expect_words({
        {2, (usage + "Error: No such option '--lerning-rate'.\n").c_str(),
         "No such option '--lerning-rate'."},
        {2, "Error: Missing option '--data'.\n", "Missing option '--data'."},
        {2, "Usage: c.py [OPTIONS]\n\nError: Missing option '--mode'. Choose from:\n\ta,\n\tb\n",
         "Missing option '--mode'. Choose from:\n\ta,\n\tb"},
        {1, "loading\nError: no such dataset\n", "no such dataset"},
        {2,
         "Usage: t.py [OPTIONS]\nTry 't.py --help' for help.\n"
         "╭─ Error ──────────────────────────────────────────────────────────────────────╮\n"
         "│ Invalid value for '--lr': Input should be a valid number, unable to parse    │\n"
         "│ string as a number                                                           │\n"
         "╰──────────────────────────────────────────────────────────────────────────────╯\n",
         "Invalid value for '--lr': Input should be a valid number, unable to parse string as a "
         "number"},
        {2,
         "Usage: t.py [OPTIONS]\nTry 't.py --help' for help.\n"
         "+- Error ----------------------------------------------------------------------+\n"
         "| No such option: --x                                                          |\n"
         "+------------------------------------------------------------------------------+\n",
         "No such option: --x"},
        {2,
         "\x1b[33mUsage: \x1b[0mt.py\n\x1b[31m╭─\x1b[0m\x1b[31m Error \x1b[0m\x1b[31m─╮\x1b[0m\n"
         "\x1b[31m│\x1b[0m No such option: --x \x1b[31m│\x1b[0m\n\x1b[31m╰────╯\x1b[0m\n",
         "No such option: --x"},
    });
}

TEST(Refusal, WhatAbslFireJsonargparseAndTyroSayOfArgumentsIsToldInTheirWords) {
    const std::string help = "\nPass --helpshort or --helpfull to see help on flags.\n";
    const std::string fire =
        "\nUsage: f.py PATH <flags>\n  optional flags:        --lr\n\n"
        "For detailed information on this command, run:\n  f.py --help\n";
    const std::string tip =
        "usage: j.py [--config CONFIG] [--lr LR]\n"
        "tip: For details of accepted options run: j.py --help\n";
    const auto box = [](const std::string& title, const std::string& words) {
        return "╭─ " + title + " ──────╮\n│ " + words +
               " │\n│ ────────────────── │\n│ Argument helptext: │\n"
               "│     --lr FLOAT │\n│ ────── │\n│ For full helptext, see t.py --help │\n╰──────╯\n";
    };
    expect_words({
        {1,
         ("FATAL Flags parsing error: Unknown command line flag 'lrr'. Did you mean: lr ?" + help)
             .c_str(),
         "Unknown command line flag 'lrr'. Did you mean: lr ?"},
        {1,
         ("loading\nFATAL Flags parsing error:\n  flag --lr=x: could not convert string to float: "
          "'x'" +
          help)
             .c_str(),
         "flag --lr=x: could not convert string to float: 'x'"},
        {1, "FATAL Flags parsing error: that was got over\nepoch 1\n", "(none)"},
        {2, ("a 0.1\nERROR: Could not consume arg: --nope=3" + fire).c_str(),
         "Could not consume arg: --nope=3"},
        {2,
         ("ERROR: The function received no value for the required argument: path" + fire).c_str(),
         "The function received no value for the required argument: path"},
        {2, "ERROR: something that was got over\nUsing cuda\n", "(none)"},
        {2, (tip + "error: unrecognized arguments: --lrr 1\n").c_str(),
         "unrecognized arguments: --lrr 1"},
        {2,
         (tip + "error: Parser key \"lr\":\n  Expected a <class 'float'>. Got value: x\n").c_str(),
         "Parser key \"lr\":\nExpected a <class 'float'>. Got value: x"},
        {2, "epoch 1\nerror: disk quota exceeded\n", "(none)"},
        {2, box("Unrecognized options", "Unrecognized options: --lrr, 1").c_str(),
         "Unrecognized options: --lrr, 1"},
        {2,
         box("Value error", "Error parsing --lr: could not convert string to float: 'x'").c_str(),
         "Error parsing --lr: could not convert string to float: 'x'"},
        {1, box("Results", "accuracy 0.99").c_str(), "(none)"},
    });
}

TEST(Refusal, ALaunchersArgumentsAreToldWithItsName) {
    expect_words({
        {2,
         "usage: torchrun [-h] [--nnodes NNODES]\n                training_script ...\n"
         "torchrun: error: unrecognized arguments: --lerning-rate\n",
         "torchrun: error: unrecognized arguments: --lerning-rate"},
        {2,
         "usage: accelerate <command> [<args>]\n"
         "accelerate <command> [<args>]: error: unrecognized arguments: --mixed\n",
         "accelerate <command> [<args>]: error: unrecognized arguments: --mixed"},
        {2, "[default1]:train.py: error: argument --lr: invalid float value: 'x'\n",
         "train.py: error: argument --lr: invalid float value: 'x'"},
        {1, "a.c:1: error: no such thing\n", "(none)"},
    });
}

TEST(Refusal, AScriptAModuleOrAProgramThatIsNotThereIsNamed) {
    expect_words({
        {2, "python: can't open file '/x/train.py': [Errno 2] No such file or directory\n",
         "python: can't open file '/x/train.py': [Errno 2] No such file or directory"},
        {1, "/usr/bin/python3: No module named foo\n", "/usr/bin/python3: No module named foo"},
        {1,
         "/usr/bin/python3: Error while finding module specification for 'foo.bar' "
         "(ModuleNotFoundError: No module named 'foo')\n",
         "/usr/bin/python3: Error while finding module specification for 'foo.bar' "
         "(ModuleNotFoundError: No module named 'foo')"},
        {127, "begun\nsh: 1: trian.py: not found\n", "sh: 1: trian.py: not found"},
        {127, "/w/run.sh: line 3: trian.py: command not found\n",
         "/w/run.sh: line 3: trian.py: command not found"},
        {126, "/bin/sh: 1: ./x: Permission denied\n", "/bin/sh: 1: ./x: Permission denied"},
        {127, "env: ‘foo’: No such file or directory\n", "env: ‘foo’: No such file or directory"},
        {2, "sh: 0: cannot open nofile.sh: No such file\n",
         "sh: 0: cannot open nofile.sh: No such file"},
    });
}

TEST(Refusal, OtherOutputAndOtherCodesAreLeftAlone) {
    expect_words({
        {1, "", "(none)"},
        {2, "\n\n", "(none)"},
        {1, "step 3 loss 0.5\n", "(none)"},
        {1, "Error: a batch was skipped\nstep 4 loss 0.4\n", "(none)"},
        {2, "Error: a batch was skipped\nstep 4 loss 0.4\n", "(none)"},
        {3, "Error: no such dataset\n", "(none)"},
        {127, "loss 0.4\n", "(none)"},
        {1, "WARNING root: No module named apex, going on\n", "(none)"},
        {2, "│ half a box │\n╰──╯\n", "(none)"},
        {2, "╰──╯\n", "(none)"},
        {2, "+- Error -+\n|\n+-+\n", "(none)"},
    });
}

TEST(Refusal, AFailureWithoutANoteHasItsWords) {
    FailureFacts facts;
    facts.exit_code = 2;
    facts.ended_at = 2'000;
    facts.output = "Usage: c.py [OPTIONS]\n\nError: Missing option '--data'.\n";
    Failure failure = judge_failure(facts);
    EXPECT_EQ(failure.type, "");
    EXPECT_EQ(failure.message, "Missing option '--data'.");
    // sys.exit(2) in the script: the number is not why.
    ExceptionNote exit;
    exit.at = 1'900;
    exit.type = "SystemExit";
    exit.message = "2";
    exit.chain = {{exit.type, exit.message}};
    facts.notes = {exit};
    failure = judge_failure(facts);
    EXPECT_EQ(failure.type, "SystemExit");
    EXPECT_EQ(failure.message, "Missing option '--data'.");
    facts.exit_code = -1;
    facts.signal = SIGABRT;
    facts.notes.clear();
    EXPECT_EQ(judge_failure(facts).message, "") << "a signal is why by itself";
}

}  // namespace
}  // namespace lockstep
