#include "millrace/distributed/rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "millrace/base/error.h"
#include "tests/support/refusal.h"

namespace millrace::distributed {
namespace {

using Values = std::map<std::string, std::string>;

std::optional<Rendezvous> with(const Values& values) {
  return rendezvous_of([&](const char* name) { return values.contains(name) ? values.at(name).c_str() : nullptr; });
}

std::string error_of(const Values& values) {
  return millrace::refusal<DistributedError>([&] { static_cast<void>(with(values)); });
}

const Values kTorchrun = {{"RANK", "5"},
                          {"WORLD_SIZE", "8"},
                          {"LOCAL_RANK", "1"},
                          {"LOCAL_WORLD_SIZE", "4"},
                          {"MASTER_ADDR", "node-a"},
                          {"MASTER_PORT", "29511"},
                          {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                          {"TORCHELASTIC_RESTART_COUNT", "2"}};

TEST(Rendezvous, AnEnvironmentThatNobodySetIsOneProcess) { EXPECT_FALSE(with({}).has_value()); }

TEST(Rendezvous, AWorldOfOneIsOneProcess) {
  EXPECT_FALSE(with({{"WORLD_SIZE", "1"}, {"RANK", "0"}}).has_value());
  EXPECT_FALSE(with({{"OMPI_COMM_WORLD_SIZE", "1"}}).has_value());
}

TEST(Rendezvous, TorchrunsVariables) {
  const auto found = with(kTorchrun);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->ranks.rank, 5);
  EXPECT_EQ(found->ranks.local_rank, 1);
  EXPECT_EQ(found->ranks.world_size, 8);
  EXPECT_EQ(found->ranks.local_world_size, 4);
  EXPECT_EQ(found->host, "node-a");
  EXPECT_EQ(found->port, 29511);
  EXPECT_TRUE(found->is_served);
  EXPECT_EQ(found->attempt, 2);
}

TEST(Rendezvous, AMissingOrWrongVariableIsNamed) {
  for (const char* name : {"RANK", "MASTER_PORT"}) {
    Values values = kTorchrun;
    values.erase(name);
    EXPECT_THAT(error_of(values), testing::HasSubstr(name));
    values[name] = "seven";
    EXPECT_THAT(error_of(values), testing::AllOf(testing::HasSubstr(name), testing::HasSubstr("seven")));
  }
  Values values = kTorchrun;
  values["RANK"] = "8";
  EXPECT_THAT(error_of(values), testing::HasSubstr("rank 8, but the run has 8 processes"));
}

TEST(Rendezvous, APortThatThereIsNotIsRefused) {
  for (const char* port : {"0", "65536", "95047"}) {
    Values values = kTorchrun;
    values["MASTER_PORT"] = port;
    EXPECT_THAT(error_of(values), testing::AllOf(testing::HasSubstr("MASTER_PORT"), testing::HasSubstr(port)));
  }
}

const Values kSlurm = {{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "6"},         {"SLURM_PROCID", "4"},
                       {"SLURM_LOCALID", "0"}, {"SLURM_STEP_NODELIST", "gpu[07-08]"}, {"SLURM_STEP_TASKS_PER_NODE", "4,2"},
                       {"SLURM_NODEID", "1"},  {"SLURM_STEP_NUM_NODES", "2"},         {"SLURM_JOB_ID", "41234"}};

TEST(Rendezvous, SlurmsVariables) {
  const auto found = with(kSlurm);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->ranks.rank, 4);
  EXPECT_EQ(found->ranks.local_rank, 0);
  EXPECT_EQ(found->ranks.world_size, 6);
  EXPECT_EQ(found->ranks.local_world_size, 2);
  EXPECT_EQ(found->host, "gpu07");
  EXPECT_EQ(found->port, 20000 + 41234 % 20000);
  EXPECT_FALSE(found->is_served);
}

TEST(Rendezvous, ABatchScriptOutsideOfSrunIsOneProcess) {
  Values values = kSlurm;
  values.erase("SLURM_STEP_ID");
  EXPECT_FALSE(with(values).has_value());
}

TEST(Rendezvous, OpenMpiOnOneMachineMeetsOnTheLoopback) {
  const Values values = {{"OMPI_COMM_WORLD_SIZE", "2"},
                         {"OMPI_COMM_WORLD_RANK", "1"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                         {"PMIX_NAMESPACE", "12345"}};
  const auto found = with(values);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->host, "127.0.0.1");
  EXPECT_THAT(found->port, testing::AllOf(testing::Ge(20000), testing::Lt(40000)));
  EXPECT_EQ(found->port, with(values)->port);
}

TEST(Rendezvous, OpenMpiOnSeveralMachinesNeedsTheAddress) {
  Values values = {{"OMPI_COMM_WORLD_SIZE", "4"},
                   {"OMPI_COMM_WORLD_RANK", "1"},
                   {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                   {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
  EXPECT_THAT(error_of(values), testing::HasSubstr("MASTER_ADDR"));
  values["MASTER_ADDR"] = "node-a";
  EXPECT_EQ(with(values)->host, "node-a");
}

TEST(Rendezvous, PmisVariables) {
  const auto found = with({{"PMI_SIZE", "2"}, {"PMI_RANK", "1"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}});
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->ranks.local_rank, 1);
}

TEST(Rendezvous, FirstNodeOfAList) {
  EXPECT_EQ(first_node("login"), "login");
  EXPECT_EQ(first_node("a,b[1-2]"), "a");
  EXPECT_EQ(first_node("tux[07-12,20],login"), "tux07");
  EXPECT_EQ(first_node("rack[3,5]-node[01-04]"), "rack3-node01");
  EXPECT_EQ(first_node("tux["), "");
  EXPECT_EQ(first_node(""), "");
}

}  // namespace
}  // namespace millrace::distributed
