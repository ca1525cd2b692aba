"""The list of commands that can destroy or leak data, with the reason for each.

A rule is a row of patterns: the first matches the program's name, each further one some later word, in
this order. The list decides when a person is asked; it is not a sandbox.
"""

import re

from holdfast.model.finding import OWN_STORE
from holdfast.tools.command_guard.shell_syntax import EVERYTHING

OPEN_MODE = r"[0-7]{1,3}[2367]|([^,]*,)*([ugo]*[oa][ugoa]*)?[+=][rwxXst]*w[rwxXst]*(,.*)?"
"""A mode in which everybody can write."""
RULES: tuple[tuple[str, str], ...] = (
    # Files.
    (r"rm -\w*[rR]\w*|--recursive|--no-preserve-root", "deletes directories recursively"),
    (rf"rm|unlink {EVERYTHING.pattern}|~|\.|\.\.", "deletes everything in a directory"),
    (r"cmake -E remove_directory", "deletes directories recursively"),
    (r"xargs|parallel (.*/)?(rm|shred|unlink|truncate|kill)", "deletes or kills whatever it reads from its input"),
    (r"find -delete", "deletes whatever it finds"),
    (r"find -exec(dir)?|-ok(dir)? (.*/)?(rm|shred|unlink|truncate)", "deletes whatever it finds"),
    (r"find -fprint0?|-fprintf|-fls", "overwrites a file"),
    (r"fd|fdfind -x|-X|--exec|--exec-batch (.*/)?(rm|shred|unlink)", "deletes whatever it finds"),
    (r"rimraf|del-cli", "deletes directories recursively"),
    (r"shred|wipe|srm", "destroys files beyond recovery"),
    (r"mv /dev/null", "discards files"),
    (r"rsync --del(ete(-\w+)*)?|--remove-source-files", "deletes files at either end"),
    (rf"chmod -\w*R\w*|--recursive {OPEN_MODE}", "makes whole directories writable for everybody"),
    (rf"chmod {OPEN_MODE} -\w*R\w*|--recursive", "makes whole directories writable for everybody"),
    (r"setfacl -\w*R.*|--recursive|--restore.*", "changes who may access whole directories"),
    (r"chown|chgrp -\w*R\w*|--recursive", "changes the owner of whole directories"),
    (r"history -c|-w|-d", "clears the shell history"),
    # Disks and the machine.
    (r"mkfs(\..+)?|mke2fs|mkswap|wipefs|blkdiscard|fdisk|sfdisk|parted|cryptsetup", "formats or partitions a disk"),
    (r"dd of=/dev/(?!(null|stdout|zero)$).+", "overwrites a device"),
    (r"shutdown|reboot|halt|poweroff|telinit", "stops this machine"),
    (r"init [06]", "stops this machine"),
    (r"mount|umount|swapoff|insmod|rmmod|modprobe|setenforce .+", "changes the running system"),
    (r"sysctl -w|--write|\S+=.*", "changes the running system"),
    (r"systemctl stop|disable|mask|kill|restart|isolate|poweroff|reboot|halt", "stops services"),
    (r"service .+ stop|restart", "stops services"),
    (r"launchctl unload|bootout|remove|disable", "stops services"),
    (r"iptables|ip6tables -F|-X|--flush|-P", "changes the firewall"),
    (r"nft flush|delete", "changes the firewall"),
    (r"ufw disable|reset", "changes the firewall"),
    (r"ip del|delete|flush", "changes the network of this machine"),
    (r"userdel|useradd|usermod|groupdel|deluser|adduser|passwd|chpasswd|visudo|chsh", "changes who may log in"),
    (r"crontab -r|-e|-|[^-].*", "changes scheduled commands"),
    (r"at|batch", "runs commands later, unchecked"),
    (r"sudo|su|doas|pkexec|run0|runuser|setpriv|capsh|sg", "runs with the rights of another user"),
    (
        r"chroot|unshare|nsenter|systemd-run|bwrap|firejail|proot",
        "runs commands in another namespace or root directory",
    ),
    (r"debugfs|gcore|process_vm_readv", "reads memory or disks directly"),
    (r"gdb|strace|ltrace|perf -p|--pid.*|attach|\d+", "inspects another process"),
    # Programs that an option makes run another program.
    (
        r"tar|bsdtar --checkpoint-action.*|--to-command.*|--use-compress-program.*|--rsh-command.*|--info-script.*|"
        r"--new-volume-script.*|--rmt-command.*|-\w*[IF].*",
        "an option runs another program",
    ),
    (r"tar|bsdtar (?=\w*[IF])[AcdfhjkmprtuvxzJ][AcdfhjkmprtuvxzJIFbCTXLSWaiOP]*", "an option runs another program"),
    (r"tar|bsdtar --remove-files", "deletes the files that it archives"),
    (r"zip -[A-Za-z]*m[A-Za-z]*|--move", "deletes the files that it archives"),
    (r"7z|7za|7zr|7zz -sdel", "deletes the files that it archives"),
    (
        r"g?make -\w*f-|-\w*f/dev/.*|--file=-|--makefile=-|--eval.*|-E.*|SHELL=.*|.*=.*\$\(shell.*",
        "runs make rules that are not in a file",
    ),
    (r"g?make -\w*f|--file|--makefile -|/dev/.*|/proc/.*|<\(\)", "runs make rules that are not in a file"),
    (r"zip -[A-Za-z]*TT.*|--unzip-command.*", "an option runs another program"),
    (r"sort --compress-program.*", "an option runs another program"),
    (r"split --filter.*", "an option runs another program"),
    (r"rsync -\w*e.*|--rsh.*|--rsync-path.*", "an option runs another program"),
    (r"ssh -[46AaCfgKkMNnqsTtVvXxYy]*[FoI].*", "an option may run another program"),
    (r"ed|red", "runs editor commands that cannot be checked"),
    (r"less|more|most \+.*[!|].*", "an option runs another program"),
    (r"run-parts .+", "runs every program in a directory"),
    (r"man -P.*|--pager.*|-H.*|--html.*", "an option runs another program"),
    (
        r"xterm|gnome-terminal|konsole|tmux|screen|byobu|zellij (?!-?ls$|list-|has-session|capture-pane|show-).+",
        "runs commands in a terminal of its own",
    ),
    (r"rg --pre(=.*)?|--hostname-bin.*", "an option runs another program"),
    (r"tcpdump -z.*", "an option runs another program"),
    (r"(gcc|g\+\+|cc|c\+\+|clang(\+\+)?)[\d.-]* -wrapper.*", "an option runs another program"),
    (r"enable -\w*f.*", "loads code into the shell"),
    (r"hash -\w*p.*", "changes which program a name runs"),
    (r"bind|complete|compgen -x|-C|-F|-\w*C\w*", "makes the shell run a command later"),
    (r"mapfile|readarray -\w*C.*", "makes the shell run a command later"),
    (r"shopt expand_aliases|extglob", "changes how the shell reads the commands that follow"),
    # Processes.
    (r"kill -?\w+|-- -1", "kills every process of this user"),
    (r"kill 1|\$PPID", "kills the init process or the agent itself"),
    (r"fuser -\w*k\w*|--kill", "kills whatever uses a file or a port"),
    (r"pkill|killall|skill", "kills processes by name, whoever owns them"),
    # Containers, clusters, clouds.
    (r"docker|podman|nerdctl prune", "deletes containers, images or volumes"),
    (r"docker|podman|nerdctl volume|system rm|remove|reset", "deletes volumes with their data"),
    (r"docker|podman|nerdctl compose down -v|--volumes", "deletes volumes with their data"),
    (
        r"docker|podman|nerdctl --privileged|--pid=host|(-v|--volume=)?/:.*|(.*[,=])?(src|source)=/,.*",
        "gives a container control of this machine",
    ),
    (r"kubectl|oc delete|drain", "deletes from a cluster"),
    (r"helm uninstall|delete", "deletes from a cluster"),
    (r"terraform|tofu|pulumi destroy|down", "destroys what runs in a cloud"),
    (r"aws .+ rm|rb|delete-.+|terminate-.+", "deletes from a cloud"),
    (r"gcloud|az .+ delete", "deletes from a cloud"),
    # Databases.
    (r"dropdb|dropuser", "deletes a database or its users"),
    (r"redis-cli flushall|flushdb|FLUSHALL|FLUSHDB", "empties a database"),
    # What leaves the machine.
    (r"curl -[^-]*d|--data.*|--json @.+", "sends a file to another machine"),
    (r"curl (-[^-]*d|--(data\S*|json)=)@.+", "sends a file to another machine"),
    (r"curl --data-u.*|--url-query [^={]*@.+", "sends a file to another machine"),
    (r"curl -[^-]*d|--data.*|--json .*\$\(\).*", "sends the output of a command to another machine"),
    (r"curl -[^-]*F|--form.* .*[=;][@<].+", "sends a file to another machine"),
    (r"curl (-[^-]*F|--form\S*=).*=[@<].+", "sends a file to another machine"),
    (r"curl -[#0-46BGIJLMNOPRSZafgijklnpqsv]*T.*|--upload.*|--variable.*", "sends a file to another machine"),
    (r"curl -[#0-46BGIJLMNOPRSZafgijklnpqsv]*K.*|--config.*", "its options are in a file and cannot be checked"),
    (r"curl -[^-]*H|--header @.+", "sends a file to another machine"),
    (r"curl (-[^-]*H|--header=)@.+", "sends a file to another machine"),
    (r"wget --post-file.*|--body-file.*", "sends a file to another machine"),
    (
        r"curl|wget|http|https|xh|dig|host|nslookup|whois|ping .*\$\(\).*",
        "sends the output of a command to another machine",
    ),
    (r"gpg2? --export-secret-.*", "exports private keys"),
    (r"http|https|xh .*@.+", "sends a file to another machine"),
    (r"scp|sftp|ftp|lftp|rcp|tftp", "moves files between machines"),
    (r"rsync (?!-)[^/]+:.*", "moves files between machines"),
    (r"rclone copy|sync|move|copyto|moveto", "moves files between machines"),
    (r"aws s3 cp|sync|mv", "moves files between machines"),
    (r"openssl s_client|s_server|s_time", "opens a raw connection to another machine"),
    (r"nc|ncat|netcat|socat|telnet", "opens a raw connection to another machine"),
    (r"mail|mailx|sendmail|mutt|msmtp", "sends mail"),
    (r"gh gist|release|secret|repo create|upload|set|delete|edit", "publishes or deletes on GitHub"),
    # What is published.
    (r"npm|pnpm|yarn|bun|cargo|poetry|uv|flit|hatch|pdm|pip|gem|vsce publish|unpublish|push", "publishes a package"),
    (r"twine upload", "publishes a package"),
    (r"docker|podman push", "publishes an image"),
    # Holdfast itself.
    (r"holdfast [^-].*", OWN_STORE),
    (r"(python|pypy)[\d.]* -\w*m holdfast(\..*)?", OWN_STORE),
    (r"(python|pypy)[\d.]* -\w*mholdfast(\..*)?", OWN_STORE),
)
SHAPES: tuple[tuple[str, str], ...] = (
    (
        r"(?<!\S)(\S{1,40})\s{0,9}\(\)\s{0,9}\{[^}]{0,99}\1\s{0,9}\|\s{0,9}\1\s{0,9}&",
        "is a fork bomb",
    ),
    (r"/dev/(tcp|udp)/", "opens a raw connection to another machine"),
)
"""Patterns for the whole text."""

SQL_IGNORED = re.compile(r"/\*.*?\*/|\$\w+|\$\{\w+\}", re.DOTALL)
"""Comments, and variables of the shell, which may be empty."""
DATABASE_CLIENTS = frozenset({"psql", "mysql", "mariadb", "sqlite3", "sqlcmd", "duckdb", "cqlsh", "clickhouse-client"})
DESTRUCTIVE_SQL = (
    r"(?i)\bdrop\s+(table|database|schema|user|role|view|index|column|constraint|function|trigger|sequence|owned)\b|"
    r"\btruncate\s+\w|\bdelete\s+from\s+(only\s+)?[\w.\"`]+\s*(;|[\"']|$)|\\!|(^|[\s\"'])\.(sh|sys)\w*\s|"
    r"(^|[;\"'])\s*system\s+\w|\.[a-z]+\s+[\\\"']*\||\bcopy\b.*\bprogram\b"
)
"""In the text of any command that runs a database client: it deletes data or runs programs. A DELETE with a condition is allowed."""
