// What is known of the frameworks, one by one (job/model/launch/frameworks/).
#include "job/model/spec/framework.hpp"

#include "job/model/spec/spec.hpp"

#include <gtest/gtest.h>

#include <set>

namespace lockstep {
namespace {

TEST(Frameworks, EachIsWholeAndKnownByItsWord) {
    std::set<std::string_view> names;
    std::set<std::string_view> modules;
    std::set<std::int32_t> places;
    for (std::size_t i = 0; i < kFrameworkCount; ++i) {
        const auto framework = static_cast<Framework>(i);
        const FrameworkTraits& traits = traits_of(framework);
        EXPECT_EQ(framework_names()[i], to_string(framework));
        EXPECT_TRUE(names.insert(to_string(framework)).second) << to_string(framework);
        ASSERT_FALSE(traits.launches.empty()) << to_string(framework);
        EXPECT_EQ(traits.launches.size() == 3, traits.no_other_launch.empty())
            << to_string(framework);
        for (const FrameworkImport& import : traits.imports) {
            EXPECT_TRUE(modules.insert(import.module).second) << import.module;
            EXPECT_TRUE(places.insert(import.place).second) << import.module << ": another's place";
        }
    }
    EXPECT_EQ(names.size(), kFrameworkCount);
}

TEST(Frameworks, WhatTheirLaunchersSetForARankIsNoOthers) {
    for (const char* name : {"TORCHELASTIC_RUN_ID",
                             "PET_NNODES",
                             "KERAS_DISTRIBUTION_PROCESS_ID",
                             "PADDLE_TRAINER_ID",
                             "PADDLE_GLOBAL_RANK",
                             "PADDLE_LOCAL_RANK",
                             "RANK",
                             "WORLD_SIZE",
                             "LOCAL_RANK",
                             "LOCAL_WORLD_SIZE",
                             "GROUP_RANK",
                             "GROUP_WORLD_SIZE",
                             "NODE_RANK",
                             "NNODES",
                             "ROLE_NAME",
                             "ROLE_RANK",
                             "ROLE_WORLD_SIZE",
                             "MASTER_ADDR",
                             "MASTER_PORT",
                             "LOCAL_SIZE",
                             "CROSS_RANK",
                             "CROSS_SIZE",
                             "TF_CONFIG",
                             "TRAINING_ROLE",
                             "POD_IP",
                             "PADDLE_ROLE",
                             "PADDLE_CURRENT_ENDPOINT",
                             "PADDLE_MASTER",
                             "PADDLE_NNODES",
                             "PADDLE_RANK",
                             "PADDLE_RANK_IN_NODE",
                             "PADDLE_NPROC_PER_NODE",
                             "PADDLE_JOB_ID",
                             "PADDLE_PORT",
                             "PADDLE_PSERVERS_IP_PORT_LIST",
                             "PADDLE_GLOO_HTTP_ENDPOINT",
                             "JAX_COORDINATOR_ADDRESS",
                             "JAX_COORDINATOR_PORT",
                             "JAX_COORDINATOR_BIND_ADDRESS",
                             "JAX_LOCAL_DEVICE_IDS",
                             "HOROVOD_RANK",
                             "HOROVOD_SIZE",
                             "HOROVOD_LOCAL_RANK",
                             "HOROVOD_LOCAL_SIZE",
                             "HOROVOD_CROSS_RANK",
                             "HOROVOD_CROSS_SIZE",
                             "HOROVOD_HOSTNAME",
                             "HOROVOD_GLOO_RENDEZVOUS_ADDR",
                             "HOROVOD_GLOO_RENDEZVOUS_PORT",
                             "HOROVOD_CONTROLLER"}) {
        EXPECT_TRUE(is_launchers(name)) << name;
    }
    for (const char* name : {"PATH", "RANKS", "NCCL_DEBUG", "JAX_PLATFORMS", "HOROVOD_TIMELINE",
                             "PADDLE_WITH_GLOO", "KERAS_BACKEND", "TF_CPP_MIN_LOG_LEVEL"}) {
        EXPECT_FALSE(is_launchers(name)) << name;
    }
}

}  // namespace
}  // namespace lockstep
