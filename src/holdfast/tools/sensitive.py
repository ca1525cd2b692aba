"""The paths whose contents must not leak and those whose change gives power away, each with its reason."""

import functools
import posixpath
import re
from collections.abc import Callable
from pathlib import Path

from holdfast.model.errors import Invalid

SECRETS: tuple[tuple[str, str], ...] = (
    (r"(^|/)\.ssh(/|$)", "it holds SSH keys"),
    (r"(^|/)id_(rsa|dsa|ecdsa|ed25519)(_sk)?$", "it is a private SSH key"),
    (r"(^|/)\.env(\.(?!example|sample|template|dist|defaults?)[^/]+)?$", "it usually holds passwords and keys"),
    (r"(^|/)\.envrc$", "it usually holds passwords and keys"),
    (r"^(/private)?/etc/(g?shadow|sudoers)(-|\.d)?(/|$)", "it holds the passwords or rights of this machine"),
    (r"(^|/)\.aws(/|$)", "it holds credentials of AWS"),
    (r"(^|/)(\.azure|\.config/gcloud)(/|$)", "it holds credentials of a cloud"),
    (r"(^|/)\.?_?netrc$", "it holds passwords"),
    (r"(^|/)\.(pgpass|my\.cnf|pypirc|npmrc|git-credentials|htpasswd)$", "it holds passwords or tokens"),
    (r"(^|/)\.(gnupg|password-store)(/|$)", "it holds private keys or passwords"),
    (r"(^|/)\.kube/config$", "it holds credentials of Kubernetes clusters"),
    (r"(^|/)\.docker/config\.json$", "it holds credentials of container registries"),
    (r"(^|/)\.config/gh/hosts\.yml$", "it holds a token of GitHub"),
    (r"[^/]\.(p12|pfx|kdbx|keystore|jks)$", "it is a store of keys"),
    (r"key[^/]*\.pem$|(^|/)[^/]*(private|server|client|ssl|tls|rsa)[^/]*\.key$", "it is a private key"),
    (r"(^|/)api-key(\.txt)?$", "it is an API key"),
    (r"^/proc/[^/]+/environ$", "it holds the secrets that a process was started with"),
)
GUARDED: tuple[tuple[str, str], ...] = (
    (r"(^|/)\.(bashrc|bash_profile|bash_login|bash_logout|bash_aliases|profile)$", "every new shell runs it"),
    (r"(^|/)\.(zshrc|zprofile|zshenv|zlogin|kshrc|cshrc|tcshrc|login)$", "every new shell runs it"),
    (r"(^|/)\.config/(fish|autostart|systemd)(/|$)", "it is run without being asked for"),
    (r"(^|/)Library/Launch(Agents|Daemons)(/|$)", "it is run without being asked for"),
    (r"(^|/)\.git/(hooks(/|$)|config$)", "git runs what stands in it"),
    (r"(^|/)\.gitconfig$", "git runs what stands in it"),
    (r"^/dev/(?!(null|stdout|stderr|tty|zero|full|u?random)$|(fd|shm)/)", "it is a device"),
    (r"^(/private)?/etc(/|$)", "it configures this machine"),
    (r"^/(boot|usr|bin|sbin|lib|lib64|sys|proc|System|Library)(/|$)", "it is part of the system"),
    (r"^/var/spool/cron(/|$)", "it is run by the clock"),
)
_secrets = [(re.compile(pattern, re.IGNORECASE), reason) for pattern, reason in SECRETS]
_guarded = [(re.compile(pattern), reason) for pattern, reason in GUARDED]
_default_home = re.compile(r"(^|/)\.holdfast(/|$)")

MAX_PATH = 1_000
"""Of a longer path the end is looked at: the time some patterns take grows with its square."""

READABLE = ("files", "work")
"""Where in Holdfast's home the model may read: long output of its own calls is kept there, and perhaps its work."""
WRITABLE = ("work",)


def why_secret(path: str, home: Path | None = None) -> str | None:
    """Why showing this file to a model needs a person's word."""
    plain = normal(path)
    if _is_ours(plain, home, READABLE):
        return f"{path} belongs to Holdfast itself"
    return _reason(path, plain, _secrets)


def why_guarded(path: str, home: Path | None = None) -> str | None:
    """Why writing this file needs a person's word."""
    plain = normal(path)
    if _is_ours(plain, home, WRITABLE):
        return f"{path} belongs to Holdfast itself"
    return _reason(path, plain, [*_secrets, *_guarded])


def check_target(real: Path, why: Callable[[str, Path | None], str | None], home: Path | None) -> None:
    """Refuse a file that was reached by a harmless name: nobody was asked about where a link leads."""
    if reason := why(str(real), home):
        raise Invalid(f"this leads to a file that needs approval ({reason}); name it by its full path")


def normal(path: str) -> str:
    """The path as the rules read it: the home folder spelt out, no dots and double slashes."""
    spelt = re.sub(r"^(~|\$HOME|\$\{HOME\})(?=/|$)", lambda _: str(Path.home()), path)
    return posixpath.normpath(spelt)[-MAX_PATH:] if spelt else ""


def _reason(path: str, plain: str, rules: list[tuple[re.Pattern[str], str]]) -> str | None:
    reason = next((reason for pattern, reason in rules if pattern.search(plain)), None)
    return f"{path}: {reason}" if reason else None


def _is_ours(plain: str, home: Path | None, open_folders: tuple[str, ...]) -> bool:
    inside = _inside(plain, home)
    return inside is not None and not inside.startswith(tuple(f"{name}/" for name in open_folders))


@functools.lru_cache(maxsize=8)
def _bases(home: Path) -> frozenset[str]:
    return frozenset({str(home), str(home.resolve())})


def _inside(plain: str, home: Path | None) -> str | None:
    """Where in Holdfast's home a path leads; None if it leads elsewhere."""
    if home is not None:
        for base in _bases(home):
            if plain == base or plain.startswith(f"{base}/"):
                return plain[len(base) + 1 :]
    found = _default_home.search(plain)
    return plain[found.end() :] if found else None
