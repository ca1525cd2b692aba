"""Paths whose contents must not leak, and paths whose change can run code or grant rights, each with its reason."""

import functools
import os
import posixpath
import re
from collections.abc import Callable
from pathlib import Path

from holdfast.model.errors import Invalid
from holdfast.model.finding import OWN_FILES, Finding, summary

SECRETS: tuple[tuple[str, str], ...] = (
    (r"(^|/)\.ssh(/|$)", "holds SSH keys"),
    (r"(^|/)id_(rsa|dsa|ecdsa|ed25519)(_sk)?$", "is a private SSH key"),
    (r"(^|/)\.env(\.(?!example|sample|template|dist|defaults?)[^/]+)?$", "usually holds passwords and keys"),
    (r"(^|/)\.envrc$", "usually holds passwords and keys"),
    (r"^(/private)?/etc/(g?shadow|sudoers)(-|\.d)?(/|$)", "holds the passwords or rights of this machine"),
    (r"(^|/)\.aws(/|$)", "holds AWS credentials"),
    (r"(^|/)(\.azure|\.config/gcloud)(/|$)", "holds cloud credentials"),
    (r"(^|/)\.?_?netrc$", "holds passwords"),
    (r"(^|/)\.(pgpass|my\.cnf|pypirc|npmrc|git-credentials|htpasswd)$", "holds passwords or tokens"),
    (r"(^|/)\.(gnupg|password-store)(/|$)", "holds private keys or passwords"),
    (r"(^|/)\.kube/config$", "holds Kubernetes credentials"),
    (r"(^|/)\.docker/config\.json$", "holds container registry credentials"),
    (r"(^|/)\.config/gh/hosts\.yml$", "holds a GitHub token"),
    (r"[^/]\.(p12|pfx|kdbx|keystore|jks)$", "is a key store"),
    (r"key[^/]*\.pem$|(^|/)[^/]*(private|server|client|ssl|tls|rsa)[^/]*\.key$", "is a private key"),
    (r"(^|/)api-key(\.txt)?$", "is an API key"),
    (r"^(/var)?/run/secrets(/|$)", "holds the secrets of this container"),
    (
        r"^/proc/[^/]+/(task/[^/]+/)?(environ|mem|root|cwd|map_files|pagemap|auxv)(/|$)|^/proc/(?!self/|thread-self/)[^/]+/fd(/|$)",
        "shows the memory, the environment or the files of a process",
    ),
    (r"^/dev/(tcp|udp)/", "opens a raw connection to another machine"),
    (r"^/dev/(mem|kmem|port)$|^/proc/kcore$", "is the memory of this machine"),
)
RUN_AUTOMATICALLY: tuple[tuple[str, str], ...] = (
    (r"(^|/)\.(bashrc|bash_profile|bash_login|bash_logout|bash_aliases|profile)$", "every new shell runs it"),
    (r"(^|/)\.(zshrc|zprofile|zshenv|zlogin|kshrc|cshrc|tcshrc|login)$", "every new shell runs it"),
    (r"(^|/)\.config/(fish|autostart|systemd)(/|$)", "runs automatically"),
    (r"(^|/)Library/Launch(Agents|Daemons)(/|$)", "runs automatically"),
    (r"(^|/)\.git/(hooks(/|$)|config$)", "git runs what it contains"),
    (r"(^|/)\.gitconfig$", "git runs what it contains"),
)
GUARDED: tuple[tuple[str, str], ...] = (
    *RUN_AUTOMATICALLY,
    (r"^/dev/(?!(null|stdout|stderr|tty|zero|full|u?random)$|(fd|shm)/)", "is a device"),
    (r"^(/private)?/etc(/|$)", "configures this machine"),
    (r"^/(boot|usr|bin|sbin|lib|lib64|sys|proc|System|Library)(/|$)", "is part of the system"),
    (r"^/var/spool/cron(/|$)", "runs on a schedule"),
)
PathRule = tuple[re.Pattern[str], str]
"""A pattern and the reason for it."""
MAX_PATH = 1_000
"""Of a longer path only the end is checked: the time of some patterns grows with the square of the length."""

WORK = "work"
READABLE = ("files", WORK)
"""Folders of Holdfast's home that need no approval to read: tool output and working directories."""
WRITABLE = (WORK,)


def why_secret(path: str, home: Path | None = None) -> tuple[Finding, ...]:
    """Why showing this file to a model needs approval; empty if it does not."""
    plain = normalize(path)
    if _is_in_home(plain, home, READABLE):
        return (Finding(OWN_FILES, path),)
    return _matching(path, plain, _secrets())


def why_guarded(path: str, home: Path | None = None) -> tuple[Finding, ...]:
    """Why writing this file needs approval; empty if it does not."""
    plain = normalize(path)
    if _is_in_home(plain, home, WRITABLE):
        return (Finding(OWN_FILES, path),)
    return _matching(path, plain, [*_secrets(), *_guarded()])


def why_run_automatically(path: str) -> tuple[Finding, ...]:
    """Why a program that may write this file needs approval; empty if nothing runs the file by itself."""
    return _matching(path, normalize(path), _guarded()[: len(RUN_AUTOMATICALLY)])


def check_target(real: Path, why: Callable[[str, Path | None], tuple[Finding, ...]], home: Path | None) -> None:
    """Raise Invalid if a harmless path resolves to a file that needs approval: nobody approved the target of a link."""
    if findings := why(str(real), home):
        raise Invalid(f"this resolves to a file that needs approval ({summary(findings)}); give its full path")


def normalize(path: str) -> str:
    """The path as the rules match it: the user's home directory expanded, no dots and double slashes."""
    expanded = expand_home(path)
    return posixpath.normpath(expanded)[-MAX_PATH:] if expanded else ""


def expand_home(path: str) -> str:
    """The path with the home directory of the user expanded."""
    if re.match(r"~[\w.-]+(/|$)", path):
        return os.path.expanduser(path)  # noqa: PTH111 - never fails
    return re.sub(r"^(~|\$HOME|\$\{HOME\})(?=/|$)", lambda _: str(Path.home()), path)


# Compiled at the first use: a start would spend milliseconds on them.
@functools.cache
def _secrets() -> list[PathRule]:
    return [(re.compile(pattern, re.IGNORECASE), reason) for pattern, reason in SECRETS]


@functools.cache
def _guarded() -> list[PathRule]:
    return [(re.compile(pattern), reason) for pattern, reason in GUARDED]


def _matching(path: str, plain: str, rules: list[PathRule]) -> tuple[Finding, ...]:
    return tuple(Finding(reason, path) for pattern, reason in rules if pattern.search(plain))


def _is_in_home(plain: str, home: Path | None, open_folders: tuple[str, ...]) -> bool:
    inside = _path_in_home(plain, home)
    return inside is not None and not inside.startswith(tuple(f"{name}/" for name in open_folders))


@functools.lru_cache(maxsize=8)
def _home_paths(home: Path) -> frozenset[str]:
    return frozenset({str(home), str(home.resolve())})


def _path_in_home(plain: str, home: Path | None) -> str | None:
    """Where in Holdfast's home a path leads; None if it leads elsewhere."""
    if home is not None:
        for base in _home_paths(home):
            if plain == base or plain.startswith(f"{base}/"):
                return plain[len(base) + 1 :]
    found = re.search(r"(^|/)\.holdfast(/|$)", plain)
    return plain[found.end() :] if found else None
