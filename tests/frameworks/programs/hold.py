"""A test that kills a rank must find it there, however late it looks: it names a file that a trained rank waits for."""

import os
import time


def until_released():
    file = os.environ.get("HELD_UNTIL")
    while file and not os.path.exists(file):
        time.sleep(0.05)
