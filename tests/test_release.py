"""A release: one version, a wheel that can be rebuilt, bills of materials, licences, an update bot."""

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path

import pytest
import yaml
from packaging.utils import canonicalize_name

import dyno
from tests import containers, guides
from tests.test_deploy import SERVICES, VERSION

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent
IMAGES = ("server", "cpu", "gpu", "jax-cuda", "jax-tpu")

# SPDX ids that impose nothing on those who use Dyno beyond naming the authors. MPL-2.0 covers changes of its own files.
ALLOWED = {
    *("0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "HPND", "ISC", "MIT", "MIT-0", "MIT-CMU"),
    *("MPL-2.0", "PSF-2.0", "Python-2.0", "Unlicense", "Zlib", "LLVM-exception", "GCC-exception-3.1"),
}
KNOWN = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache License 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
    "The Unlicense (Unlicense)": "Unlicense",
}
STATED = {"namex": "Apache-2.0"}  # in its licence file alone
# Packages that this machine doesn't have, since they are for other devices or systems.
ELSEWHERE = re.compile(r"nvidia-|jax-cuda|libtpu$|tensorflow$|colorama$|tzdata$|async-timeout$")


def locked(name):
    return set(locked_versions(name))


def locked_versions(name):
    """The versions of each package: it may have several, for different versions of Python."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    versions = {}
    for package, locked_version in re.findall(r"^([\w.-]+)(?:\[.*?\])?==([^ ;]+)", text, re.MULTILINE):
        versions.setdefault(canonicalize_name(package), set()).add(locked_version)
    return versions


def test_the_version_stands_in_one_place():
    assert dyno.__version__ == version("tensordyno") == VERSION
    assert json.loads((ROOT / "docs" / "openapi.json").read_text())["info"]["version"] == VERSION
    sources = [path for part in ("dyno", "service", "workers") for path in (ROOT / part).rglob("*.py")]
    assert [path for path in sources if f'"{VERSION}"' in path.read_text()] == []


@pytest.mark.verify
def test_two_builds_of_the_wheel_have_the_same_bytes(tmp_path):
    """On another day, in another folder, with other modes and another order of hashes."""
    first = _built(tmp_path / "one", hash_seed="1", umask=0o022, age_s=0)
    second = _built(tmp_path / "another" / "folder", hash_seed="2", umask=0o077, age_s=10**8)
    assert first.name == second.name == f"tensordyno-{VERSION}-py3-none-any.whl"
    assert first.read_bytes() == second.read_bytes()


def _built(folder, hash_seed, umask, age_s):
    no_caches = shutil.ignore_patterns("__pycache__", "guide")
    before = os.umask(umask)
    try:
        for part in ("dyno", "service", "workers"):
            shutil.copytree(ROOT / part, folder / part, ignore=no_caches, copy_function=shutil.copyfile)
        for part in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copyfile(ROOT / part, folder / part)
        for path in folder.rglob("*"):
            os.utime(path, (path.stat().st_mtime - age_s,) * 2)
        build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
        env = os.environ | {"SOURCE_DATE_EPOCH": "1700000000", "PYTHONHASHSEED": hash_seed}
        subprocess.run([*build, "--wheel-dir", folder / "dist", folder], env=env, check=True, timeout=120)
    finally:
        os.umask(before)
    [wheel] = (folder / "dist").iterdir()
    return wheel


@pytest.mark.verify
def test_the_bill_of_materials_lists_what_the_image_installs(tmp_path):
    texts = [_bill(tmp_path / name) for name in ("one.json", "two.json")]
    assert texts[0] == texts[1]
    bill = json.loads(texts[0])
    assert (bill["bomFormat"], bill["metadata"]["component"]["name"]) == ("CycloneDX", "tensordyno")
    assert bill["metadata"]["component"]["version"] == VERSION
    assert {canonicalize_name(each["name"]) for each in bill["components"]} == locked("server")
    assert all(each["purl"].startswith("pkg:pypi/") and each["version"] for each in bill["components"])


def _bill(file):
    command = [BIN / "cyclonedx-py", "requirements", ROOT / "requirements" / "server.txt"]
    command += ["--pyproject", ROOT / "pyproject.toml", "--output-reproducible", "--output-format", "JSON"]
    subprocess.run([*command, "--output-file", file], check=True, capture_output=True, timeout=120)
    return file.read_text()


@pytest.mark.parametrize("image", IMAGES)
def test_no_image_has_a_package_whose_licence_is_not_allowed(image):
    wrong = {}
    for name in sorted(locked(image)):
        try:
            found = STATED.get(name) or _licence(distribution(name))
        except PackageNotFoundError:
            found = "the package isn't installed"
        if not _is_allowed(found) and not ELSEWHERE.match(name):
            wrong[name] = found
    assert wrong == {}


def _licence(of):
    """An SPDX expression, from the metadata's expression, its classifiers or its text, in this order."""
    metadata = of.metadata
    if expression := metadata.get("License-Expression"):
        return expression
    names = [each.rpartition(" :: ")[2] for each in metadata.get_all("Classifier") or () if each.startswith("License")]
    if known := [KNOWN.get(name, name) for name in names if name != "OSI Approved"]:
        return " AND ".join(known)
    text = (metadata.get("License") or "none is stated").strip().partition("\n")[0]
    return KNOWN.get(text, text)


def _is_allowed(expression):
    """Whether every part of the expression is allowed, or one of its alternatives."""
    alternatives = re.split(r"\sOR\s", expression.replace("(", " ").replace(")", " "))
    return any(set(re.split(r"\s(?:AND|WITH)\s", each.strip())) <= ALLOWED for each in alternatives)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("MIT", True),
        ("Apache-2.0 AND BSD-3-Clause", True),
        ("(GPL-2.0-only OR MIT)", True),
        ("GPL-3.0-or-later", False),
        ("MIT AND AGPL-3.0-only", False),
        ("none is stated", False),
    ],
)
def test_licences_are_allowed_by_their_expression(expression, expected):
    assert _is_allowed(expression) is expected


def test_the_images_install_no_tool_of_developers():
    assert not locked("server") & {"hatchling", "pytest", "mypy", "tensorflow-cpu"}
    assert not locked("cpu") & {"hatchling", "pytest", "mypy"}
    assert "hatchling" in locked("build")


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_has_the_versions_that_the_tests_run_with(image):
    tested = locked_versions("dev")
    shared = {name: found for name, found in locked_versions(image).items() if name in tested}
    assert {name: found for name, found in shared.items() if not found <= tested[name]} == {}


@pytest.mark.verify
@pytest.mark.parametrize(
    ("schema", "file"), [("dependabot", "dependabot.yml"), ("github-workflows", "workflows/checks.yml")]
)
def test_the_configuration_of_github_is_valid(schema, file):
    command = [BIN / "check-jsonschema", "--builtin-schema", f"vendor.{schema}", ROOT / ".github" / file]
    subprocess.run(command, check=True, capture_output=True)


def test_each_change_runs_the_tests_and_the_audit_of_every_image():
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "checks.yml").read_text())["jobs"].values()
    assert {step.get("run") for job in jobs for step in job["steps"]} == {None, "bash .ci/run", "make audit"}


def test_the_update_bot_finds_what_it_updates():
    """Dependabot can't read an image with a variable."""
    updates = yaml.safe_load((ROOT / ".github" / "dependabot.yml").read_text())["updates"]
    folders = {each["package-ecosystem"]: ROOT / each["directory"].lstrip("/") for each in updates}
    assert folders["pip"] == ROOT
    manifests = "".join(path.read_text() for path in folders["docker"].glob("*.yaml"))
    images = re.findall(r"^ +image: (.+)$", manifests, re.MULTILINE)
    assert containers.interpolated(SERVICES["redis"])["image"] in images
    assert not [image for image in images if "$" in image]


def test_every_lock_that_an_image_installs_has_a_bill():
    made = re.search(r"^IMAGES := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert tuple(made[1].split()) == IMAGES
    assert {service["build"]["args"]["LOCK"] for service in SERVICES.values() if "build" in service} <= set(IMAGES)


def test_the_release_builds_the_images_of_the_compose_file():
    page = ROOT / "docs" / "dev" / "releasing.md"
    [block] = [block.text for block in guides.blocks(page) if "buildx build" in block.text]
    built = set(re.findall(r"^build (\S+) (\S+) (\S+)$", block, re.MULTILINE))
    composed = {name: each for name, each in SERVICES.items() if "build" in each}
    assert built == {
        (each["build"]["target"], each["build"]["args"]["LOCK"], each["image"].partition(":")[0])
        for each in composed.values()
    }
    options = set(re.findall(r"--build-arg ([A-Z_]+)", block))
    dockerfile = (ROOT / "deploy" / "Dockerfile").read_text()
    assert options <= set(re.findall(r"^ARG ([A-Z_]+)", dockerfile, re.MULTILINE))
    base = re.findall(r"^FROM (\S+?)\$\{PYTHON_DIGEST\}", dockerfile, re.MULTILINE)
    assert {f"inspect {image} " in block for image in base} == {True}
    assert {target for target, _, _ in built} <= containers.stages(dockerfile).keys()
