"""Builds wheel and sdist of the folder it is in (PEP 517, 660: also for pip install -e), with the standard library alone.

Pure Python, no dependency, so a wheel is a zip of the package with three files of metadata (PEP 427, 621).
Reproducible: every file has the same date.
"""

import base64
import gzip
import hashlib
import io
import os
import pathlib
import re
import tarfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
DATE = (1980, 1, 1, 0, 0, 0)


def _project():
    """name, version, description and requires-python of pyproject.toml; before Python 3.11 there is no tomllib."""
    text = (HERE / "pyproject.toml").read_text(encoding="utf-8")
    found = dict(re.findall(r'^([a-z-]+) = "([^"]*)"$', text.split("[build-system]")[0], re.M))
    found["classifiers"] = re.findall(r'"([^"]* :: [^"]*)"', text)
    return found


def _metadata(project):
    lines = ["Metadata-Version: 2.1", f"Name: {project['name']}", f"Version: {project['version']}",
             f"Summary: {project['description']}", "License: Apache-2.0",
             f"Requires-Python: {project['requires-python']}", "Description-Content-Type: text/markdown"]
    lines += [f"Classifier: {one}" for one in project["classifiers"]]
    return "\n".join(lines) + "\n\n" + (HERE / "README.md").read_text(encoding="utf-8")


def _files():
    """The package's own: no caches."""
    return sorted(path for path in (HERE / "lockstep").rglob("*") if path.suffix in (".py", ".typed"))


def get_requires_for_build_wheel(config_settings=None):
    return []


def get_requires_for_build_editable(config_settings=None):
    return []


def get_requires_for_build_sdist(config_settings=None):
    return []


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    return _wheel(wheel_directory, {path.relative_to(HERE).as_posix(): path.read_bytes() for path in _files()})


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """One whose only module is the way to this folder."""
    return _wheel(wheel_directory, {"__editable__.lockstep.pth": f"{HERE}\n".encode()})


def _wheel(wheel_directory, contents):
    project = _project()
    name = f"{project['name']}-{project['version']}"
    info = f"{name}.dist-info"
    contents[f"{info}/METADATA"] = _metadata(project).encode()
    contents[f"{info}/WHEEL"] = (b"Wheel-Version: 1.0\nGenerator: lockstep\nRoot-Is-Purelib: true\n"
                                 b"Tag: py3-none-any\n")
    record = []
    for path, data in contents.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record.append(f"{path},sha256={digest},{len(data)}")
    record.append(f"{info}/RECORD,,")
    contents[f"{info}/RECORD"] = ("\n".join(record) + "\n").encode()
    wheel = f"{name}-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(wheel_directory, wheel), "w", zipfile.ZIP_DEFLATED) as out:
        for path, data in contents.items():
            entry = zipfile.ZipInfo(path, DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o100644 << 16
            out.writestr(entry, data)
    return wheel


def build_sdist(sdist_directory, config_settings=None):
    project = _project()
    name = f"{project['name']}-{project['version']}"
    contents = {path.relative_to(HERE).as_posix(): path.read_bytes() for path in _files()}
    for path in ("pyproject.toml", "build_backend.py", "README.md"):
        contents[path] = (HERE / path).read_bytes()
    contents["PKG-INFO"] = _metadata(project).encode()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as out:
        for path, data in sorted(contents.items()):
            entry = tarfile.TarInfo(f"{name}/{path}")
            entry.size, entry.mode = len(data), 0o644
            out.addfile(entry, io.BytesIO(data))
    sdist = f"{name}.tar.gz"
    with open(os.path.join(sdist_directory, sdist), "wb") as file, \
            gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as out:
        out.write(packed.getvalue())
    return sdist
