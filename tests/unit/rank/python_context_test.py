"""lockstep.context(): who a process is, by what its environment says."""

import os
import pathlib
import sys
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "job" / "rank" / "python"))

import lockstep  # noqa: E402


def place(**variables):
    with mock.patch.dict(os.environ, dict(variables, LOCKSTEP_JOB_ID="ls-x"), clear=True):
        return lockstep.context()


class Context(unittest.TestCase):
    def numbers(self, **variables):
        found = place(**variables)
        return found.rank, found.world_size, found.local_rank, found.local_world_size

    def test_a_rank_that_mpirun_or_paddle_has_started_is_known(self):
        # Such a one was rank -1, though it said hello as rank 2; of Paddle's the world had 1.
        self.assertEqual(self.numbers(OMPI_COMM_WORLD_RANK="2", OMPI_COMM_WORLD_SIZE="8", OMPI_COMM_WORLD_LOCAL_RANK="1",
                                      OMPI_COMM_WORLD_LOCAL_SIZE="2"), (2, 8, 1, 2))
        self.assertEqual(self.numbers(PADDLE_TRAINER_ID="2", PADDLE_TRAINERS_NUM="6", PADDLE_RANK_IN_NODE="0",
                                      LOCKSTEP_LOCAL_WORLD_SIZE="3"), (2, 6, 0, 3))
        self.assertEqual(self.numbers(LOCKSTEP_WORLD_SIZE="8", LOCKSTEP_LOCAL_WORLD_SIZE="2"), (-1, 8, -1, 2),
                         "what starts the ranks is none")

    def test_a_number_that_is_none_costs_none_of_the_others(self):
        self.assertEqual(self.numbers(LOCKSTEP_RANK="x", RANK="3", LOCKSTEP_WORLD_SIZE="4", LOCKSTEP_LOCAL_RANK="-1",
                                      LOCAL_RANK="1", MASTER_PORT="70000"), (3, 4, 1, 1))


if __name__ == "__main__":
    unittest.main()
