"""What slurmctld of a SlurmCluster (cluster.py) has saved: what it would find after a power failure."""

import secrets
import shutil

from slurm_hosts import until


class SavedState:
    """The part of SlurmCluster that looks into the folder in which slurmctld keeps its state."""

    def until_saved_as_it_is(self, job):
        """Until a save that knows the job, and all others, as they are now. slurmctld writes what has
        changed every 5 s; a kill before that loses it. A save may be under way that began earlier,
        so it is one that knows a mark of now."""
        mark = f"saved-{secrets.token_hex(8)}"
        self.run("scontrol", "update", f"JobId={job}", f"Comment={mark}")
        saved = self.folder / "state" / "job_state"

        def found():
            try:
                return mark.encode() in saved.read_bytes()
            except FileNotFoundError:  # slurmctld removes it before it links the new one in its place
                return False
        until(found, 20, f"{mark} in {saved}")

    def copy_state(self, to):
        """A copy of slurmctld's state between two of its saves, in a folder that it makes anew."""
        state = self.folder / "state"

        def writing():
            return list(state.glob("*.new"))

        def copied():
            shutil.rmtree(to, ignore_errors=True)
            self.stop_slurmctld()
            try:
                if writing():  # what it had before is half unlinked
                    return False
                shutil.copytree(state, to)
                return not writing()
            except shutil.Error:  # its last thread had not stopped yet
                return False
            finally:
                self.cont_slurmctld()
        until(copied, 20, "a moment without a save")
