"""The server as a systemd user service: `holdfast serve --install` and `--uninstall`."""
