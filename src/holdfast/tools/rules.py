"""The written list of commands that can destroy or leak, with the reason for each.

A rule is a row of patterns: the first fits the program's name, each further one some later word, in
this order. The list decides when a person is asked; it is not a sandbox.
"""

RULES: tuple[tuple[str, str], ...] = (
    # Files.
    (r"rm -\w*[rR]\w*|--recursive", "it deletes folders with all that is in them"),
    (r"rm \*|\./\*|/\*|~|~/\*|\.|\.\.", "it deletes everything in a folder"),
    (r"xargs|parallel rm|shred|unlink|kill", "it deletes or ends whatever it is fed"),
    (r"find|fd -delete", "it deletes whatever it finds"),
    (r"find -exec(dir)?|-ok(dir)? (.*/)?(rm|shred|unlink)", "it deletes whatever it finds"),
    (r"fd -x|-X|--exec|--exec-batch (.*/)?(rm|shred|unlink)", "it deletes whatever it finds"),
    (r"shred|wipe|srm", "it destroys files beyond recovery"),
    (r"mv /dev/null", "it throws files away"),
    (r"rsync --del(ete(-\w+)*)?|--remove-source-files", "it deletes files at either end"),
    (r"chmod -\w*R\w*|--recursive 0?777|a\+\w*w\w*|o\+\w*w\w*|\+\w*w\w*", "it lets everybody write to whole folders"),
    (r"chown|chgrp -\w*R\w*|--recursive", "it changes the owner of whole folders"),
    (r"history -c|-w|-d", "it clears the record of what was done"),
    # Disks and the machine.
    (r"mkfs(\..+)?|mke2fs|mkswap|wipefs|blkdiscard|fdisk|sfdisk|parted|cryptsetup", "it formats or divides a disk"),
    (r"dd of=/dev/(?!(null|stdout|zero)$).+", "it writes over a device"),
    (r"shutdown|reboot|halt|poweroff|telinit", "it stops this machine"),
    (r"init [06]", "it stops this machine"),
    (r"mount|umount|swapoff|insmod|rmmod|modprobe|setenforce .+", "it changes the running system"),
    (r"sysctl -w|--write|\S+=.*", "it changes the running system"),
    (r"systemctl stop|disable|mask|kill|restart|isolate|poweroff|reboot|halt", "it stops services"),
    (r"service .+ stop|restart", "it stops services"),
    (r"launchctl unload|bootout|remove|disable", "it stops services"),
    (r"iptables|ip6tables -F|-X|--flush|-P", "it opens or closes the firewall"),
    (r"nft flush|delete", "it opens or closes the firewall"),
    (r"ufw disable|reset", "it opens or closes the firewall"),
    (r"userdel|useradd|usermod|groupdel|deluser|adduser|passwd|chpasswd|visudo|chsh", "it changes who may log in"),
    (r"crontab -r|-|[^-].*", "it changes what is run by the clock"),
    (r"sudo|su|doas|pkexec|run0", "it acts with the rights of another user"),
    # Processes.
    (r"kill -?\w+|-- -1", "it ends every process of this user"),
    (r"kill 1|\$PPID", "it ends the system's first process or the agent itself"),
    (r"pkill|killall|skill", "it ends processes by name, whoever they belong to"),
    # Version control.
    (r"git push --force.*|-\w*f|--mirror|--delete|-d|--prune|\+.+|:.+", "it rewrites or deletes what others have"),
    (r"git reset --hard|--merge", "it throws away changes that are not committed"),
    (r"git clean -\w*f\w*|--force", "it deletes files that git does not know"),
    (r"git checkout|restore \.|\./|:/|\*|-f|--force", "it throws away changes that are not committed"),
    (r"git branch -\w*D\w*", "it deletes a branch that is not merged"),
    (r"git stash drop|clear", "it throws away stashed changes"),
    (r"git reflog expire|delete", "it destroys what git could still bring back"),
    (r"git filter-branch|filter-repo", "it rewrites history"),
    (r"git update-ref -d", "it deletes a branch"),
    # Containers, clusters, clouds.
    (r"docker|podman|nerdctl prune", "it deletes containers, images or volumes"),
    (r"docker|podman|nerdctl volume|system rm|remove|reset", "it deletes volumes with their data"),
    (r"docker|podman|nerdctl compose down -v|--volumes", "it deletes volumes with their data"),
    (r"docker|podman|nerdctl --privileged|--pid=host|/:.*|--volume=/:.*", "it hands this machine to a container"),
    (r"kubectl|oc delete|drain", "it deletes from a cluster"),
    (r"helm uninstall|delete", "it deletes from a cluster"),
    (r"terraform|tofu|pulumi destroy|down", "it destroys what runs in a cloud"),
    (r"aws .+ rm|rb|delete-.+|terminate-.+", "it deletes from a cloud"),
    (r"gcloud|az .+ delete", "it deletes from a cloud"),
    # Databases.
    (r"dropdb|dropuser", "it deletes a database or its users"),
    (r"redis-cli flushall|flushdb|FLUSHALL|FLUSHDB", "it empties a database"),
    # What leaves the machine.
    (r"curl -d|--data(-binary|-ascii|-raw)?|--json @.+", "it sends a file to another machine"),
    (r"curl (-d|--data(-binary|-ascii)?=|--json=)@.+", "it sends a file to another machine"),
    (r"curl --data-urlencode .*@.+", "it sends a file to another machine"),
    (r"curl -F|--form(-string)? .*[=;][@<].+", "it sends a file to another machine"),
    (r"curl (-F|--form=).*=[@<].+", "it sends a file to another machine"),
    (r"curl -[sSfLkvi]*T.*|--upload-file.*", "it sends a file to another machine"),
    (r"wget --(post|body)-file.*", "it sends a file to another machine"),
    (r"http|https|xh .*@.+", "it sends a file to another machine"),
    (r"scp|sftp|ftp|lftp|rcp|tftp", "it moves files between machines"),
    (r"rsync (?!-)[^/]+:.*", "it moves files between machines"),
    (r"rclone copy|sync|move|copyto|moveto", "it moves files between machines"),
    (r"aws s3 cp|sync|mv", "it moves files between machines"),
    (r"nc|ncat|netcat|socat|telnet", "it opens a bare connection to another machine"),
    (r"mail|mailx|sendmail|mutt|msmtp", "it sends mail"),
    (r"gh gist|release|secret|repo create|upload|set|delete|edit", "it publishes or deletes on GitHub"),
    # What is published.
    (r"npm|pnpm|yarn|bun|cargo|poetry|uv|flit|hatch|pdm|pip|gem|vsce publish|unpublish|push", "it publishes a package"),
    (r"twine upload", "it publishes a package"),
    (r"docker|podman push", "it publishes an image"),
    # Holdfast itself.
    (
        r"holdfast delete|prune|restore|migrate|import|export|backup|kill|reset",
        "it changes or copies Holdfast's own store",
    ),
)
SHAPES: tuple[tuple[str, str], ...] = (
    (
        r"(?<!\S)(\S{1,40})\s{0,9}\(\)\s{0,9}\{[^}]{0,99}\1\s{0,9}\|\s{0,9}\1\s{0,9}&",
        "it starts copies of itself without end",
    ),
    (r"/dev/(tcp|udp)/", "it opens a bare connection to another machine"),
)
"""Patterns for the whole text, for what only shows in it."""

DATABASE_CLIENTS = frozenset({"psql", "mysql", "mariadb", "sqlite3", "sqlcmd", "duckdb", "cqlsh", "clickhouse-client"})
DESTRUCTIVE_SQL = (
    r"(?i)\bdrop\s+(table|database|schema|user|role|view|index)\b|\btruncate\s+\w|"
    r"\bdelete\s+from\s+[\w.]+\s*(;|[\"']|$)"
)
"""In the text of any command that runs a database client. A DELETE with a condition is let through."""

INLINE_CODE = (
    r"rmtree|rm_rf|rmSync|rmdirSync|os\.(remove|unlink|system|exec|popen)|subprocess|child_process|b64decode|"
    r"fromBase64|from_base64|\b(unlink|system|exec|eval)\s*[(\"'`]"
)
"""In the code that a command hands to a language: it deletes files, or starts what this list cannot see."""
