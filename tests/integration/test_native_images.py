"""A data set of image files, written by Pillow, trained by the native trainer as a job: ImageNet's layout and its surprises."""

import pathlib
import re
import tempfile
import unittest

import harness
import image_files

BUILT = (harness.BIN / "lockstep-train").exists()


@unittest.skipUnless(BUILT, "SKIPPED: lockstep-train is not built here")
@unittest.skipUnless(image_files.available(), "SKIPPED: Pillow (python3-pil) is not installed here")
class NativeImages(harness.TestCase):
    def setUp(self):
        super().setUp()
        temporary = tempfile.TemporaryDirectory(prefix="lockstep-images-")
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        image_files.write(self.folder / "images")

    def submit(self, **train):
        return self.daemon.submit({
            "name": "images", "framework": "native", "working_directory": str(self.folder),
            "resources": {"ranks_per_node": 2}, "checkpoint": {"directory": str(self.folder / "kept")},
            "train": {"model": "mnist_convnet", "dataset": {"name": "images", "path": "images", "resize": 32},
                      "batch_size": 8, "epochs": 6, "learning_rate": 0.003, **train}})

    def test_two_ranks_learn_what_the_folders_say(self):
        job = self.submit()
        self.assertEqual(self.daemon.wait_state(job["id"], harness.FINAL, 120)["state"], "succeeded")
        losses = self.daemon.series(job["id"])
        self.assertEqual(sorted(losses), [0, 1])
        log = self.daemon.rank_log(job["id"], 0)
        self.assertGreater(float(re.findall(r"accuracy ([0-9.]+)", log)[-1]), 0.9, log[-2000:])

    def test_a_file_that_breaks_off_is_the_jobs_cause(self):
        broken = self.folder / "images" / "train" / "green" / "green_5.JPEG"
        broken.write_bytes(broken.read_bytes()[:-20])
        job = self.submit()
        done = self.daemon.wait_state(job["id"], harness.FINAL, 120)
        self.assertEqual(done["state"], "failed", done)
        self.assertIn("green_5.JPEG: JPEG: truncated", str(done["cause"]), done)

    def test_an_image_to_test_with_that_breaks_off_takes_no_step_with_it(self):
        broken = self.folder / "images" / "val" / "green" / "green_5.JPEG"
        broken.write_bytes(broken.read_bytes()[:-20])
        job = self.submit(checkpoint_every_steps=0, epochs=2)
        done = self.daemon.wait_state(job["id"], harness.FINAL, 120)
        self.assertEqual(done["state"], "failed", done)
        self.assertIn("evaluation: ", str(done["cause"]), done)
        self.assertIn("val/green/green_5.JPEG: JPEG: truncated", str(done["cause"]), done)
        self.assertEqual([f.name for f in (self.folder / "kept").glob("step-*.ckpt")], ["step-00000005.ckpt"])

    def test_other_classes_to_test_with_are_refused_by_every_rank(self):
        (self.folder / "images" / "val" / "red").rename(self.folder / "images" / "val" / "rot")
        job = self.submit()
        done = self.daemon.wait_state(job["id"], harness.FINAL, 120)
        self.assertEqual(done["state"], "failed", done)
        self.assertIn("train and val have different classes", str(done["cause"]), done)

    def test_what_has_no_effect_is_refused(self):
        status, answer = self.daemon.api("POST", "/v1/jobs", {
            "name": "no", "framework": "native", "train": {"dataset": {"name": "digits", "augment": False}}})
        self.assertEqual(status, 400, answer)
        self.assertEqual([e["pointer"] for e in answer["errors"]], ["/train/dataset/augment"], answer)
        status, answer = self.daemon.api("POST", "/v1/jobs", {
            "name": "no", "framework": "native", "train": {"dataset": {"name": "images"}}})
        self.assertEqual(status, 400, answer)
        self.assertIn("the folder that holds train and val", str(answer), answer)


if __name__ == "__main__":
    harness.main()
