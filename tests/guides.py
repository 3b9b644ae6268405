"""The commands of the guides: in blocks (```sh) and in the text. Which of them a page marks as untested.

**Untested:** and the names of programs mean that no test runs their commands in this section, or on the whole page if
it stands before the first section. The reason follows: "since …".
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
_PAGES = [*sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("docs/dev/*.md"))]
GUIDES = [*map(ROOT.joinpath, ["README.md", "CONTRIBUTING.md", "SECURITY.md"]), *_PAGES]
LANGUAGES = {"sh", "python", "json", "yaml", "text"}
# A span of code in a text that begins with one of these, and has an argument, is a command.
PROGRAMS = {
    *("apt", "apt-get", "brew", "cosign", "crontab", "curl", "df", "dmesg"),
    *("docker", "du", "dyno", "gcloud", "git", "grafana", "haproxy", "helm"),
    *("jq", "journalctl", "kubectl", "kustomize", "make", "mkdocs", "mount", "nginx"),
    *("npm", "nvidia-smi", "openssl", "pip", "podman", "prometheus", "promtool", "python"),
    *("python3", "python3.11", "redis-benchmark", "redis-check-aof", "redis-cli", "redis-server", "rsync", "scp"),
    *("ss", "ssh", "sudo", "systemctl", "systemd-analyze", "systemd-sysusers", "taskset", "uv"),
    *("valkey-cli", "wget"),
}
# The commands that tests/service/test_runbooks.py runs as they stand in the text.
RUN = ("curl $DYNO_URL/", "redis-cli -u $REDIS_URL ", "du -s ", "ss -tn ", "taskset -c ", "openssl x509 ")
# The result that the README shows, up to the verdict: what follows depends on the machine.
[SHOWN] = re.findall(r"^```text\n(matmul on .*?^verdict:)", GUIDES[0].read_text(), re.MULTILINE | re.DOTALL)
_FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_COMMANDS = re.compile(r"^( *)```sh\n(.*?)^\1```$(?:\n\n```json\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
REASON = r"\b(?:since|because)\b"
_UNTESTED = re.compile(r"\*\*Untested:\*\*(.*?)(?:\n\n|\n[-*] |\n\d+\. |\Z)", re.DOTALL)


class Section(NamedTuple):
    """A part of a page up to the next heading of the second level."""

    page: Path
    text: str
    untested: frozenset[str]


class Block(NamedTuple):
    """A block of commands, and the JSON that the page shows right behind it."""

    section: Section
    text: str
    shown: str


class Span(NamedTuple):
    """A command in a text, on one line."""

    section: Section
    text: str


def shape(printed):
    """The parts of a printed result, without what a machine decides: its device, its figures and their scale.

    A test compares the outputs that pages show by shape, so that it passes on any machine.
    """
    text = re.sub(r" on .+ \(cpu:[\d,-]+\)$", " on DEVICE", printed, flags=re.MULTILINE)
    text = re.sub(r"\d[\d.]*(?: [kMGTP]?(?=FLOP/s))?", "#", text)
    return {part for line in text.splitlines() for part in re.split(r", | ?\(|\)", line) if part}


def sections(page):
    introduction, *others = re.split(r"^(?=## )", page.read_text(), flags=re.MULTILINE)
    for text in (introduction, *others):
        marked = [re.split(REASON, each)[0] for each in _UNTESTED.findall(introduction) + _UNTESTED.findall(text)]
        yield Section(page, text, frozenset(re.findall(r"`([\w.-]+)`", " ".join(marked))))


def reasons(page):
    """What the page says is untested, and why."""
    return _UNTESTED.findall(page.read_text())


def languages(page):
    """What the blocks of code are written in."""
    return {language for _, language, _ in _FENCE.findall(page.read_text())}


def prose(text):
    return _FENCE.sub("", text)


def indented(page):
    """The first line of each block of code that is indented instead of fenced. Lists may have indented paragraphs."""
    found, owner, previous = [], "", ""
    for line in prose(page.read_text()).splitlines():
        if line[:1].strip():
            owner = line
        if line.startswith("    ") and not previous and not re.match(r"(?:\d+\.|[-*]) ", owner):
            found.append(line)
        previous = line.strip()
    return found


def blocks(page):
    for section in sections(page):
        for indent, text, shown in _COMMANDS.findall(section.text):
            yield Block(section, re.sub(f"^{indent}", "", text, flags=re.MULTILINE), shown)


def spans(page):
    """Commands with an argument. A name in angle brackets stands for something else, so it isn't one to check."""
    for section in sections(page):
        for text in re.findall(r"(?<!`)`([^`]+)`(?!`)", prose(section.text)):
            line = " ".join(text.split())
            if "<" not in line and programs_of(line) and len(words_of(line)) > 1:
                yield Span(section, line)


def words_of(command):
    """The words of a command from its program on, which has no folder."""
    words = re.sub(r"^(?:\w+=\S+ )+", "", command.strip()).split()
    return [words[0].rpartition("/")[2], *words[1:]] if words else []


def programs_of(text):
    """The programs that the lines of a command call, as far as PROGRAMS names them."""
    lines = re.split(r"\n|&&|\|\|?|;|\$\(", text.replace("\\\n", " "))
    return {words[0] for words in map(words_of, lines) if words} & PROGRAMS
