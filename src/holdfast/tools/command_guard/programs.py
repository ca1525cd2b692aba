"""Names of programs that the command guard knows, apart from those in `risk_rules`."""

from holdfast.tools.command_guard.inline_code import SHELLS, runs_code
from holdfast.tools.command_guard.shell_parser import KEYWORDS
from holdfast.tools.command_guard.wrappers import WRAPPERS


def split_names(text: str) -> frozenset[str]:
    """The names in a text, separated by spaces."""
    return frozenset(text.split())


PLAIN = split_names(
    "alias awk basename bc cal cat cd clear cmp column comm cp cut date df diff dig dirname du echo egrep exit expand "
    "export expr false fgrep file fmt fold free gawk getconf getent git grep groups gunzip gzip head hexdump hostname id "
    "install jobs join jq kill less ln local locale ls lsblk lscpu lsof man md5sum mkdir mktemp more mv nl nproc od paste "
    "pgrep popd printenv printf ps pushd pwd read readlink readonly realpath return rev rg rm rmdir sed seq set sha1sum "
    "sha256sum shift shuf sleep sort split stat strings sum tac tail tar tee test top touch tr tree true truncate tsort "
    "tty type typeset ulimit umask uname unalias uniq unset unzip uptime wait wc which who whoami xxd yes yq zcat zip "
    "curl wget ping host nslookup ag ack [ [[ : psql mysql mariadb sqlite3 pytest py.test mypy ruff black flake8 pylint "
    "isort eslint prettier tsc jest vitest holdfast gh helm terraform systemctl service journalctl declare "
    "apropos whatis info help history"
)
"""Programs that do not run their arguments."""
INSTALLERS = split_names(
    "apt apt-get brew dnf yum apk pacman pip pip3 pipx npm pnpm yarn gem cargo go conda mamba uv poetry"
)
INSTALLS = frozenset({"install", "add", "i", "ci", "search", "show", "info", "remove", "uninstall", "list", "update"})
OPTION_SENSITIVE = frozenset(
    {"rm", "unlink", "find", "chmod", "chown", "chgrp", "rsync", "tar", "systemctl", "kubectl", "terraform"}
)
"""Programs whose options decide whether they are dangerous."""
SHADOWED = (
    PLAIN | INSTALLERS | SHELLS | WRAPPERS.keys() | {"python", "python3", "node", "make", "ssh", "sudo", "docker"}
)
"""Names that a shell text must not redefine."""
RUN_ARGUMENTS = split_names(
    "sudo su doas pkexec run0 runuser setpriv gtimeout chroot unshare nsenter systemd-run bwrap firejail proot find fd "
    "fdfind eval source . trap alias make gmake tmux screen at batch"
)
"""Programs and builtins that run their arguments, apart from wrappers, shells and languages."""
HEADERS = split_names("for case select function [ [[")
"""Words that start a compound command, apart from the keywords that are dropped in front of a command."""


def runs_arguments(name: str) -> bool:
    """Whether a program or keyword runs its arguments: a common prefix then says nothing about the rest."""
    return name in WRAPPERS or name in RUN_ARGUMENTS or name in KEYWORDS or name in HEADERS or runs_code(name)
