"""Which git commands need approval: those that discard work, rewrite what others have, or run other programs."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from holdfast.tools.command_guard.programs import split_names
from holdfast.tools.command_guard.shell_syntax import ShellWord

FLAGS = split_names(
    "-p -P --paginate --no-pager --bare --no-replace-objects --no-optional-locks --no-lazy-fetch --literal-pathspecs "
    "--glob-pathspecs --noglob-pathspecs --icase-pathspecs"
)
VALUES = frozenset({"-C", "--git-dir", "--work-tree", "--namespace"})
SAFE_CONFIG = re.compile(
    r"(user\.(name|email)|color\..*|advice\..*|init\.defaultbranch|safe\.directory|commit\.gpgsign|tag\.gpgsign|"
    r"core\.(quotepath|autocrlf|eol|filemode|ignorecase|longpaths|abbrev)|pull\.(rebase|ff)|push\.(default|autosetupremote)|"
    r"merge\.(ff|conflictstyle)|rebase\.(autostash|autosquash)|diff\.(renames|algorithm|context)|fetch\.prune|"
    r"log\.(date|decorate)|column\..*|branch\.[^.]+\.(remote|merge)|remote\.[^.]+\.(url|fetch)|http\.(postbuffer|version)|"
    r"grep\..*|blame\..*|status\..*|format\..*|i18n\..*|help\.autocorrect)(=.*)?",
    re.IGNORECASE | re.DOTALL,
)
SUBCOMMANDS = split_names(
    "add am annotate apply archive bisect blame branch bundle cat-file check-attr check-ignore check-mailmap "
    "check-ref-format checkout cherry cherry-pick clean clone column commit commit-graph commit-tree config "
    "count-objects describe diff diff-files diff-index diff-tree difftool fast-export fast-import fetch filter-branch "
    "filter-repo fmt-merge-msg for-each-ref format-patch fsck gc grep hash-object help hook init interpret-trailers "
    "lfs log ls-files ls-remote ls-tree maintenance merge merge-base merge-file merge-tree mergetool mktree mv "
    "name-rev notes prune pull push range-diff read-tree rebase reflog remote repack replace request-pull rerere "
    "reset restore rev-list rev-parse revert rm send-email shortlog show show-branch show-ref sparse-checkout stash "
    "status stripspace submodule switch symbolic-ref tag update-index update-ref var verify-commit verify-pack "
    "verify-tag version whatchanged worktree write-tree"
)
CONFIG_VALUES = ("--file", "--blob", "--comment", "--type", "--default", "--value", "--url")
LOSES = "discards uncommitted changes"
DELETES = "deletes untracked files"
REWRITES = "rewrites or deletes what others may have pulled"
RUNS = "makes git run another program"


def find_git_risks(words: list[ShellWord], workdir: Path | None) -> Iterator[tuple[str, str]]:
    """The risks of a git command, as pairs of a reason and of shell text that it runs; either may be empty."""
    index = 1
    while index < len(words):
        text = words[index].text
        if words[index].starts_computed:
            yield "which git command runs is only known at run time", ""
            return
        if text == "-c" or text.startswith("--config-env"):
            setting = words[index + 1].text if text == "-c" and index + 1 < len(words) else text
            if not SAFE_CONFIG.fullmatch(setting):
                yield RUNS if "!" in setting else "changes git settings in a way that is not understood", ""
            index += 2 if text in {"-c", "--config-env"} else 1
        elif text in VALUES or text.startswith(tuple(f"{name}=" for name in VALUES)) or text in FLAGS:
            if text == "-C" and index + 1 < len(words) and workdir is not None:
                workdir = workdir / words[index + 1].text
            index += 2 if text in VALUES else 1
        elif text in {"--version", "--help", "-h", "-v", "--html-path", "--man-path", "--info-path", "--exec-path"}:
            return
        elif text.startswith("-"):
            yield f"git option is not understood: {text[:40]}", ""
            return
        else:
            break
    if index < len(words):
        yield from _in_subcommand(words[index].text, words[index + 1 :], workdir)


def _in_subcommand(name: str, words: list[ShellWord], workdir: Path | None) -> Iterator[tuple[str, str]]:
    if name not in SUBCOMMANDS:
        yield f"git has no command {name[:40]}, so it may be an alias, which can run anything", ""
        return
    arguments = [word.text for word in words]
    if any(text.startswith("ext::") for text in arguments) or (name == "clone" and _has(arguments, "cu", "")):
        yield RUNS, ""
    if name != "rebase" and _has(arguments, "", "upload-pack receive-pack exec extcmd open-files-in-pager config"):
        yield RUNS, ""
    if name in {"clone", "init"} and _has(arguments, "", "template"):
        yield RUNS, ""
    yield from _in_running(name, words, arguments)
    if reason := _why(name, arguments, words, workdir):
        yield reason, ""


def _in_running(name: str, words: list[ShellWord], arguments: list[str]) -> Iterator[tuple[str, str]]:
    """Commands of git that run others."""
    if name == "rebase":
        for index, text in enumerate(arguments):
            if re.fullmatch(r"-x|--ex(e(c)?)?", text) and index + 1 < len(words):
                yield ("", arguments[index + 1]) if not words[index + 1].is_computed else (RUNS, "")
            elif re.match(r"-x.|--ex(ec?)?=", text):
                yield RUNS, ""
    elif name == "submodule" and "foreach" in arguments:
        inner = words[arguments.index("foreach") + 1 :]
        is_known = inner and not any(word.is_computed for word in inner)
        yield ("", " ".join(word.text for word in inner if not word.text.startswith("--"))) if is_known else (RUNS, "")
    elif name == "bisect" and arguments[:1] == ["run"]:
        is_known = not any(word.is_computed for word in words)
        yield ("", " ".join(arguments[1:])) if is_known else (RUNS, "")
    elif (
        (name == "grep" and any(text.startswith("-O") for text in arguments))
        or (name in {"difftool", "mergetool"} and any(text.startswith(("-x", "-t", "--tool")) for text in arguments))
        or (name == "hook" and arguments[:1] == ["run"])
    ):
        yield RUNS, ""
    elif name == "config":
        yield from _in_config(arguments)


def _in_config(arguments: list[str]) -> Iterator[tuple[str, str]]:
    if any(re.match(r"-e$|--ed(it)?$|edit$", text) for text in arguments):
        yield RUNS, ""
        return
    values = {index + 1 for index, text in enumerate(arguments) if _takes_config_value(text)}
    plain = [
        text
        for index, text in enumerate(arguments)
        if not text.startswith("-") and index not in values and text not in {"set", "get", "list", "unset"}
    ]
    reads = any(re.match(r"--get|-l$|--list|get$|list$|--unset|unset$", text) for text in arguments)
    if not reads and len(plain) > 1 and not SAFE_CONFIG.fullmatch(plain[0]):
        yield "changes git settings, which can make git run other programs", ""


def _takes_config_value(option: str) -> bool:
    """Whether the word after an option of `git config` is its value."""
    if option.startswith("--"):
        return len(option) > 2 and any(full.startswith(option) for full in CONFIG_VALUES)
    return re.fullmatch(r"-\w*f", option) is not None


def _why(name: str, arguments: list[str], words: list[ShellWord], workdir: Path | None) -> str:
    """Why the command needs approval; empty if it does not."""
    has_unknown = any(word.starts_computed and (word.may_split or len(word.parts) == 1) for word in words)
    match name:
        case "push":
            is_forced = _has(arguments, "fd", "force force-with-lease force-if-includes mirror delete prune")
            remote = next((text for text in arguments if not text.startswith("-")), "")
            if re.search(r"[:/@]", remote):
                return "sends the repository to an address that is not among its remotes"
            return REWRITES if is_forced or has_unknown or any(re.match(r"\+.|:.", text) for text in arguments) else ""
        case "reset":
            return LOSES if _has(arguments, "", "hard merge") or has_unknown else ""
        case "clean":
            return "" if _has(arguments, "n", "dry-run") and not _has(arguments, "f", "force") else DELETES
        case "checkout":
            if _has(arguments, "B", ""):
                return "moves a branch even if its commits are lost"
            return LOSES if has_unknown or _checks_out_files(arguments, workdir) else ""
        case "switch":
            return LOSES if _has(arguments, "fC", "force discard-changes force-create") or has_unknown else ""
        case "restore":
            is_index_only = _has(arguments, "S", "staged") and not _has(arguments, "W", "worktree")
            return "" if is_index_only else LOSES
        case "rm":
            return LOSES if _has(arguments, "f", "force") or has_unknown else ""
        case "branch":
            is_forced = _has(arguments, "DMCf", "force")
            return "deletes or moves a branch even if commits are lost" if is_forced or has_unknown else ""
        case "tag":
            return "deletes or moves a tag" if _has(arguments, "df", "delete force") else ""
        case "stash":
            action = next((text for text in arguments if not text.startswith("-")), "")
            return "discards stashed changes" if action in {"drop", "clear"} or has_unknown else ""
        case "mv":
            return LOSES if _has(arguments, "f", "force") or has_unknown else ""
        case "worktree":
            return LOSES if "remove" in arguments or "prune" in arguments else ""
        case "reflog":
            return "deletes what git could still restore" if {"expire", "delete"} & set(arguments) else ""
        case "gc":
            return "deletes what git could still restore" if _has(arguments, "", "prune aggressive") else ""
        case "prune":
            return "" if _has(arguments, "n", "dry-run") else "deletes what git could still restore"
        case "update-ref":
            return "deletes a branch" if _has(arguments, "d", "delete stdin") or has_unknown else ""
        case "filter-branch" | "filter-repo" | "replace" | "fast-import":
            return "rewrites history"
        case "send-email":
            return "sends mail"
        case "submodule":
            return LOSES if "deinit" in arguments or _has(arguments, "f", "force") else ""
        case "read-tree" | "update-index" | "symbolic-ref":
            return "changes the state of the repository directly" if arguments[1:] else ""
        case _:
            return ""


def _checks_out_files(arguments: list[str], workdir: Path | None) -> bool:
    """Whether a checkout overwrites files instead of changing the branch."""
    if "--" in arguments or _has(arguments, "f", "force ours theirs pathspec-from-file"):
        return True
    if _has(arguments, "bB", "orphan detach"):
        return False
    plain = [text for text in arguments if not text.startswith("-") or text == "-"]
    if len(plain) > 1 or any(re.match(r"\.|:|.*[*?\[]|.*/$", text) for text in plain):
        return True
    return workdir is not None and any(os.path.lexists(workdir / text) for text in plain if "\0" not in text)


def _has(arguments: list[str], letters: str, names: str) -> bool:
    """Whether one of these options is given, abbreviated or in one word with others."""
    for text in arguments:
        if text == "--":
            return False
        if text.startswith("--"):
            option = text[2:].partition("=")[0]
            if option and any(full.startswith(option) for full in names.split()):
                return True
        elif text.startswith("-") and any(letter in text[1:] for letter in letters):
            return True
    return False
