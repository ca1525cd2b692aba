"""The command `holdfast`. The version is told without loading anything else."""

import sys


def main() -> int:
    if sys.argv[1:] == ["--version"]:
        from holdfast import __version__

        print(f"holdfast {__version__}")
        return 0
    from holdfast.cli.main import main as run

    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
