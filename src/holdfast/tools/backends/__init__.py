"""Where the commands and the file tools of a session run: this machine, a sandbox, a container, or another machine."""
