"""Image files in ImageNet's layout, written by Pillow: `image_files.py FOLDER EACH`. Debian's Python has it (python3-pil),
the one that runs the tests may not."""

import pathlib
import random
import subprocess
import sys

PYTHON = "/usr/bin/python3"
COLOURS = {"blue": (20, 40, 220), "green": (30, 200, 40), "red": (220, 30, 30)}


def available():
    return pathlib.Path(PYTHON).exists() and subprocess.run(
        [PYTHON, "-c", "import PIL"], stderr=subprocess.DEVNULL, check=False).returncode == 0


def write(folder, each=24):
    """Three classes that their colour tells, of any size and of the formats that ImageNet has."""
    subprocess.run([PYTHON, "-B", __file__, str(folder), str(each)], check=True)


def write_here(folder, each):
    from PIL import Image

    chance = random.Random(5)
    for part, count in (("train", each), ("val", each // 3)):
        for name, colour in COLOURS.items():
            (folder / part / name).mkdir(parents=True)
            for i in range(count):
                size = (chance.randrange(40, 200), chance.randrange(40, 200))
                image = Image.new("RGB", size, tuple(min(255, max(0, c + chance.randrange(-20, 20))) for c in colour))
                stem = folder / part / name / f"{name}_{i}"
                if i % 8 == 0:
                    image.save(f"{stem}.png")
                elif i % 8 == 1:
                    image.convert("CMYK").save(f"{stem}.JPEG", quality=90)
                elif i % 8 == 2:
                    image.save(f"{stem}.JPEG", format="PNG")  # ImageNet's n02105855_2933 is one
                else:
                    image.save(f"{stem}.JPEG", quality=90, progressive=i % 8 == 3)


if __name__ == "__main__":
    write_here(pathlib.Path(sys.argv[1]), int(sys.argv[2]))
