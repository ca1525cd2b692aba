"""Variables of the environment that make other programs run or load something."""

import re

RUN_BY_PROGRAMS = re.compile(
    r"(GIT_)?(SEQUENCE_)?(EDITOR|PAGER)|VISUAL|MANPAGER|BROWSER|GIT_SSH(_COMMAND)?|GIT_ASKPASS|SSH_ASKPASS|"
    r"GIT_EXTERNAL_DIFF|GIT_PROXY_COMMAND|LESSOPEN|LESSCLOSE|PROMPT_COMMAND|SUDO_ASKPASS|MAKEFLAGS|SHELL|"
    r"(CARGO_BUILD_)?RUSTC(_WORKSPACE)?_WRAPPER|CARGO_TARGET_.*_(RUNNER|LINKER)|RSYNC_RSH|CVS_RSH"
)
LOADED_BY_PROGRAMS = re.compile(
    r"BASH_ENV|LD_PRELOAD|LD_AUDIT|LD_LIBRARY_PATH|PERL5OPT|RUBYOPT|NODE_OPTIONS|PYTHONSTARTUP|PS4|"
    r"GIT_CONFIG(_.*)?|DYLD_.*|BASHOPTS|SHELLOPTS|GCONV_PATH|BASH_FUNC_.*|ENV|TAR_OPTIONS|ZIPOPT|GNUMAKEFLAGS|"
    r"MAKEFILES|RIPGREP_CONFIG_PATH|GIT_EXEC_PATH|GIT_TEMPLATE_DIR|BASH_(CMDS|ALIASES)(\[.*)?"
)
HARMLESS_RUN = frozenset(
    {"", "cat", "less", "more", "true", ":", "vi", "vim", "nano", "emacs", "/bin/bash", "/bin/sh", "bash", "sh", "head"}
)
CHANGES_LOADED = "changes what programs load when they start"


def find_variable_risk(name: str, value: str) -> str:
    """Why a person must approve this assignment; empty if it needs no approval."""
    if LOADED_BY_PROGRAMS.fullmatch(name):
        return CHANGES_LOADED
    if RUN_BY_PROGRAMS.fullmatch(name) and value not in HARMLESS_RUN:
        return "sets a program that other programs run"
    return ""
