from pathlib import Path

import pytest

from holdfast.model.finding import Finding
from holdfast.tools.sensitive_paths import GUARDED, SECRETS, why_guarded, why_secret

HOME = Path("/data/hf")
SECRET = [
    "~/.ssh/config",
    "$HOME/.ssh",
    "/x/id_rsa",
    "id_ed25519",
    ".env",
    "app/.env.production",
    ".envrc",
    "/etc/shadow",
    "/etc/sudoers.d/x",
    "~/.aws/credentials",
    "~/.config/gcloud/x.json",
    "~/.azure/token",
    "~/.netrc",
    "~/.pgpass",
    "~/.npmrc",
    "~/.git-credentials",
    "~/.gnupg/x",
    "~/.kube/config",
    "/run/secrets/api-key",
    "~/.docker/config.json",
    "~/.config/gh/hosts.yml",
    "store.p12",
    "privkey.pem",
    "tls/server.key",
    "api-key",
    "/proc/self/environ",
    "/proc/1/root/etc/hosts",
    "/dev/mem",
    "/dev/tcp/x.test/80",
    "/data/hf",
    "/data/hf/holdfast.db",
    "/data/./hf//logs/../api-key",
    "~/.holdfast/config.toml",
    "../.holdfast/holdfast.db",
]
GUARDED_ONLY = [
    "~/.bashrc",
    ".profile",
    "~/.zshrc",
    "~/.config/fish/config.fish",
    "~/Library/LaunchAgents/x.plist",
    ".git/hooks/pre-commit",
    "sub/.git/config",
    "~/.gitconfig",
    "/dev/sda",
    "/etc/hosts",
    "/etc",
    "/usr/bin/python3",
    "/proc/sysrq-trigger",
    "/var/spool/cron/root",
]
FREE = [
    "README.md",
    ".env.example",
    "src/env.py",
    "environment",
    "ssh/notes.md",
    "id_rsa.pub",
    "cert.pem",
    "monkey.txt",
    "keys.py",
    "config.json",
    "/tmp/x",
    ".gitignore",
    ".github/workflows/x.yml",
    "/dev/null",
    "/home/u/project/etc/hosts",
    "/data/hfx/y",
]


@pytest.mark.parametrize("path", SECRET)
def test_files_with_secrets_are_neither_read_nor_written_without_approval(path):
    assert why_secret(path, HOME)
    assert why_guarded(path, HOME)


@pytest.mark.parametrize("path", GUARDED_ONLY)
def test_files_that_grant_rights_are_not_written_without_approval(path):
    assert why_guarded(path, HOME)
    assert why_secret(path, HOME) == ()


@pytest.mark.parametrize("path", FREE)
def test_ordinary_files_need_no_approval(path):
    assert why_secret(path, HOME) == ()
    assert why_guarded(path, HOME) == ()


@pytest.mark.parametrize(("rules", "why"), [(SECRETS, why_secret), (GUARDED, why_guarded)])
def test_every_rule_has_an_example(rules, why):
    given = [finding.reason for path in SECRET + GUARDED_ONLY for finding in why(path)]

    assert {reason for _, reason in rules} <= set(given)


def test_the_model_may_read_the_files_that_its_own_output_was_put_in_but_not_write_them():
    assert why_secret("/data/hf/files/s1/terminal-1.log", HOME) == ()
    assert why_guarded("/data/hf/files/s1/terminal-1.log", HOME)
    assert why_secret("/data/hf/files/../holdfast.db", HOME)
    assert why_secret("/data/hf/files", HOME), "the folder itself names other sessions"


def test_work_directories_inside_the_home_need_no_approval():
    assert why_secret("/data/hf/work/notes.txt", HOME) == ()
    assert why_guarded("/data/hf/work/notes.txt", HOME) == ()
    assert why_guarded("/data/hf/work/.git/hooks/pre-push", HOME)


def test_the_reason_names_the_path():
    assert why_secret("~/.ssh/config") == (Finding("holds SSH keys", "~/.ssh/config"),)
